"""Cores and memory, as the kernel states them for a machine and its containers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lostflops.core import resources

Written = Callable[[dict[str, str]], None]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Return a function that writes the files of a process in the control group /job/worker."""
    (tmp_path / "cgroup/job/worker").mkdir(parents=True)
    (tmp_path / "own").write_text("0::/job/worker\n")
    for constant, name in (("_CGROUPS", "cgroup"), ("_OWN_CGROUP", "own"), ("_VMSTAT", "vmstat"), ("_MEMINFO", "info")):
        monkeypatch.setattr(resources, constant, tmp_path / name)

    def write(files: dict[str, str]) -> None:
        for name, text in files.items():
            (tmp_path / name).write_text(text)

    return write


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({"memory.max": "max\n", "memory.current": "5\n"}, 9216),
        ({"memory.max": "1000\n", "memory.current": "400\n"}, 600),
        ({"memory.max": "1000\n", "memory.current": "990\n", "memory.stat": "anon 90\ninactive_file 700\n"}, 710),
        ({"memory.max": "1000\n", "memory.current": "1001\n"}, 0),
        (
            {"memory.max": "1000\n", "memory.current": "990\n", "memory.stat": "active_file 60\nslab_reclaimable 7\n"},
            77,
        ),
        ({}, 9216),
    ],
)
@pytest.mark.parametrize("group", ["cgroup/job/worker", "cgroup/job", "cgroup"])
def test_files_in_the_memory_of_a_container_make_room(
    group: str, files: dict[str, str], free: int, kernel: Written
) -> None:
    kernel({"info": "MemTotal:       20 kB\nMemAvailable:    9 kB\n"})
    kernel({f"{group}/{name}": text for name, text in files.items()})
    assert resources.free_memory() == free


def test_containers_of_the_first_version_of_control_groups(kernel: Written, tmp_path: Path) -> None:
    (tmp_path / "cgroup/memory/job").mkdir(parents=True)
    kernel({"own": "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n", "info": "MemAvailable:    9 kB\n"})
    kernel({"cgroup/memory/job/memory.limit_in_bytes": "4096\n", "cgroup/memory/job/memory.usage_in_bytes": "96\n"})
    assert (resources.free_memory(), resources.total_memory()) == (4000, 4096)


def test_free_memory_is_unknown_where_the_system_does_not_say(kernel: Written) -> None:
    assert resources.free_memory() is None


def test_the_kernels_records_of_this_container(kernel: Written) -> None:
    own = "cgroup/job/worker"
    kernel({f"{own}/memory.events": "low 0\noom 3\noom_kill 2\n", f"{own}/memory.max": "max\n"})
    kernel({"cgroup/job/memory.max": "4096\n", "vmstat": "nr_free_pages 7\noom_kill 5\n"})
    assert (resources.count_memory_kills(), resources.total_memory()) == (7, 4096)


def test_memory_of_a_process_grows_with_what_it_writes() -> None:
    before = resources.private_memory()
    held = bytearray(b"x" * (64 << 20))
    assert resources.private_memory() - before > 0.9 * len(held)
    assert resources.private_memory(1 << 30) == 0
