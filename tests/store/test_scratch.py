"""Temporary folders of killed processes are removed by the next one, and those in use are left alone."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lostflops.store import scratch
from lostflops.store.scratch import remove_abandoned, scratch_folder

_HOLD = """
import sys, tempfile
from lostflops.store.scratch import scratch_folder
tempfile.tempdir = sys.argv[1]
with scratch_folder() as folder:
    (folder / "rows").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


_LOOP = """
import sys, tempfile, time
from lostflops.store.scratch import scratch_folder
tempfile.tempdir = sys.argv[1]
until = time.monotonic() + 1.5
while time.monotonic() < until:
    with scratch_folder() as folder:
        (folder / "rows").write_text("x")
"""


def test_processes_that_make_folders_at_once_do_not_take_those_of_others(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _LOOP, str(tmp_path)]
    both = [subprocess.Popen(words) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_no_temporary_folder_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"{scratch._PREFIX}link").symlink_to(tmp_path)
    words = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        held = Path(process.stdout.readline().strip())
        with scratch_folder() as own:
            remove_abandoned()
            assert (held / "rows").exists()
            assert own.exists()
        process.kill()
    remove_abandoned()
    assert [path.name for path in tmp_path.iterdir()] == [f"{scratch._PREFIX}link"]
