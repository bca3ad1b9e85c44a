"""What a host says of itself."""

from pathlib import Path

import pytest

from lostflops.collect.calibrate import machine


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({"memory.max": "max\n", "memory.current": "5\n"}, 900),
        ({"memory.max": "1000\n", "memory.current": "400\n"}, 600),
        ({"memory.max": "1000\n", "memory.current": "990\n", "memory.stat": "anon 90\ninactive_file 700\n"}, 710),
        ({"memory.max": "1000\n", "memory.current": "1001\n"}, 0),
        ({}, 900),
    ],
)
def test_files_in_the_memory_of_a_container_make_room(
    files: dict[str, str], free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(machine, "_meminfo", lambda _: 900)
    assert machine.free_memory() == free
