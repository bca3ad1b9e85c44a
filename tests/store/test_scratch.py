"""Temporary folders of killed processes are removed by the next one, and those in use are left alone."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

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


def test_a_killed_process_leaves_no_temporary_folder_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "lostflops-scratch-link").symlink_to(tmp_path)
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
    assert [path.name for path in tmp_path.iterdir()] == ["lostflops-scratch-link"]
