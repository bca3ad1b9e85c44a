"""Machines that lack something, each fact made up; then this one, as it is."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lostflops.doctor import host_checks as host
from lostflops.doctor import torch_checks as job
from lostflops.doctor.capture_checks import capture_checks
from lostflops.doctor.check import DoctorCheck
from lostflops.doctor.interpreter import ask, parse_facts
from lostflops.doctor.machine import Disk, Interpreter, Machine, Torch
from lostflops.doctor.probes import disk, kernel_clock
from lostflops.doctor.result import is_usable, result
from made_captures import end, frames, session, write
from made_jobs import MadeJob

TORCH = Torch(
    version="2.13.0",
    has_distributed=True,
    backends=("gloo", "nccl"),
    has_flight_recorder=True,
    has_kineto=True,
    activities=("CPU", "CUDA"),
    accelerator="cuda",
    devices=("NVIDIA H100 80GB HBM3",) * 8,
)
PYTHON = Interpreter(
    python="3.12.1",
    executable="/env/bin/python",
    is_injected=True,
    other_sitecustomize=None,
    frameworks={"accelerate": "1.0"},
    torch=TORCH,
)
DISK = Disk(
    folder="/data", file_system="ext4", free_bytes=10**12, write_error="", write_ns=5_000_000, written_bytes=4 << 20
)
MACHINE = Machine(
    interpreter=PYTHON,
    interpreter_error="",
    disk=DISK,
    clocksource="tsc",
    clock_step_ns=30,
    is_synchronised=True,
    clock_error_us=500,
    cores=64,
    load=3.0,
)


def all_checks(machine: Machine) -> list[DoctorCheck]:
    return [*job.torch_checks(machine), *host.host_checks(machine)]


def check_of(machine: Machine, name: str) -> DoctorCheck:
    (found,) = [check for check in all_checks(machine) if check.name == name]
    return found


def with_torch(**changes: Any) -> Machine:
    return replace(MACHINE, interpreter=replace(PYTHON, torch=replace(TORCH, **changes)))


def with_python(**changes: Any) -> Machine:
    return replace(MACHINE, interpreter=replace(PYTHON, **changes))


def with_disk(**changes: Any) -> Machine:
    return replace(MACHINE, disk=replace(DISK, **changes))


def with_environment(**environment: str) -> Machine:
    return replace(MACHINE, environment=environment)


def test_a_sound_machine_has_no_limits() -> None:
    assert {check.state for check in all_checks(MACHINE)} == {"ok"}
    assert result(all_checks(MACHINE)).verdict == "Everything can be measured."


@pytest.mark.parametrize(
    ("machine", "name", "state", "finding"),
    [
        (with_python(is_injected=False), "injection", "limited", "does not run"),
        (
            with_python(other_sitecustomize="/x/sitecustomize.py"),
            "injection",
            "ok",
            "so does the existing one, /x/sitecustomize.py",
        ),
        (replace(MACHINE, environment={"CONDA_PREFIX": "/conda"}), "python", "limited", "environment is /conda"),
        (replace(MACHINE, environment={"CONDA_PREFIX": "/env"}), "python", "ok", "Python 3.12.1, /env/bin/python"),
        (with_torch(has_distributed=False), "distributed", "no", "without torch.distributed"),
        (with_torch(backends=("gloo",)), "distributed", "limited", "backends: gloo"),
        (with_torch(has_flight_recorder=False), "flight recorder", "no", "cannot dump"),
        (with_environment(TORCH_FR_BUFFER_SIZE="0"), "flight recorder", "no", "TORCH_FR_BUFFER_SIZE=0"),
        (with_environment(TORCH_NCCL_TRACE_BUFFER_SIZE="0"), "flight recorder", "no", "turns the recorder off"),
        (with_environment(TORCH_FR_BUFFER_SIZE="5000"), "flight recorder", "ok", "buffer of 5,000 entries"),
        (with_torch(has_kineto=False), "profiler", "no", "without Kineto"),
        (with_torch(activities=("CPU",)), "profiler", "limited", "but not cuda"),
        (with_torch(accelerator=None, activities=("CPU",)), "accelerator", "no", "none"),
        (with_disk(free_bytes=10**9), "space", "limited", "1.00 GB free"),
        (with_disk(free_bytes=None), "space", "limited", "unknown"),
        (with_disk(file_system="tmpfs"), "file system", "limited", "tmpfs"),
        (with_disk(file_system="lustre"), "file system", "ok", "a network file system"),
        (with_disk(write_ns=3_000_000_000), "file system", "limited", "written in 3.00 s"),
        (replace(MACHINE, clocksource="hpet"), "clock", "limited", "clocksource hpet"),
        (replace(MACHINE, clock_step_ns=4_000_000), "clock", "limited", "resolution 4.00 ms"),
        (replace(MACHINE, is_synchronised=None), "time server", "limited", "unknown"),
        (replace(MACHINE, is_synchronised=False), "time server", "limited", "is not synchronised"),
        (MACHINE, "time server", "ok", "within 500 us"),
        (replace(MACHINE, load=65.0), "cores", "limited", "64 cores, load 65.0"),
        (replace(MACHINE, open_files=256), "limits", "limited", "open files: 256"),
        (replace(MACHINE, file_size=10**6), "limits", "limited", "files of at most 1.00 MB"),
        (with_environment(CUDA_INJECTION64_PATH="/x.so"), "other profilers", "limited", "CUDA_INJECTION64_PATH"),
        (with_environment(KINETO_USE_DAEMON="1"), "other profilers", "limited", "dynolog"),
        (with_environment(KINETO_USE_DAEMON="0"), "other profilers", "ok", "none"),
        (replace(MACHINE, nvidia_params="RmProfilingAdminOnly: 1\n"), "counters", "ok", "administrators only"),
        (replace(MACHINE, nvidia_params="RmProfilingAdminOnly: 0\n"), "counters", "ok", "everybody"),
    ],
)
def test_one_fact_changes_one_check(machine: Machine, name: str, state: str, finding: str) -> None:
    check = check_of(machine, name)
    assert check.state == state
    assert finding in check.finding
    others = {each.name for each in all_checks(machine) if each.state != "ok"} - {name}
    assert others == set()
    assert is_usable(all_checks(machine))


@pytest.mark.parametrize(
    ("machine", "name", "why"),
    [
        (
            replace(MACHINE, interpreter=None, interpreter_error="it did not answer"),
            "python",
            "the collector runs inside the job's Python, and this Python cannot be queried",
        ),
        (with_python(python="3.9.2"), "python", "the collector needs Python 3.11 or newer"),
        (
            with_python(torch=None, torch_error="ModuleNotFoundError: No module named 'torch'"),
            "torch",
            "PyTorch cannot be imported",
        ),
        (with_disk(write_error="Permission denied"), "folder", "the folder is not writable"),
        (with_disk(free_bytes=1000), "space", "too little disk space, records would be lost"),
    ],
)
def test_what_is_needed(machine: Machine, name: str, why: str) -> None:
    checks = all_checks(machine)
    assert not is_usable(checks)
    assert [check.name for check in checks if check.is_needed and check.state == "no"] == [name]
    assert result(checks).verdict == f"Cannot record: {why}."


def test_a_driver_without_a_device_that_torch_sees() -> None:
    machine = replace(with_torch(accelerator=None, activities=("CPU",)), nvidia_params="")
    assert check_of(machine, "accelerator").state == "limited"


@pytest.fixture
def wrapper(tmp_path: Path) -> Callable[[str], str]:
    def make(text: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return make


def test_an_interpreter_is_asked_in_a_process_of_its_own() -> None:
    before = set(sys.modules)
    found, error = ask(sys.executable, os.environ)
    assert (error, {name for name in set(sys.modules) - before if name.startswith("torch")}) == ("", set())
    assert found is not None
    assert found.is_injected
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert (found.torch is None) == bool(found.torch_error)


def test_an_interpreter_that_ignores_the_environment(wrapper) -> None:
    found, _ = ask(wrapper(f'exec {sys.executable} -I "$@"'), os.environ)
    assert found is not None
    assert not found.is_injected


def test_the_safe_path_does_not_keep_the_collector_out() -> None:
    found, _ = ask(sys.executable, {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"})
    assert found is not None
    assert found.is_injected


def test_a_sitecustomize_of_the_environment_is_found(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('must not run twice')")
    found, _ = ask(sys.executable, {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert found is not None
    assert found.other_sitecustomize == str(tmp_path / "sitecustomize.py")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exec sleep 30", "did not answer within 0.5 s"),
        ("echo broken >&2; exit 7", "exit code 7: broken"),
        ("kill -SEGV $$", "exit code -11: it printed nothing"),
        ("echo '[1]'", "exit code 0"),
    ],
)
def test_an_interpreter_that_does_not_answer(wrapper, text: str, message: str) -> None:
    found, error = ask(wrapper(text), {}, timeout=0.5)
    assert found is None
    assert message in error


def test_an_interpreter_that_is_not_there() -> None:
    found, error = ask("/no/such/python", {})
    assert (found, error) == (None, "/no/such/python cannot be started: No such file or directory")


def test_what_others_print_does_not_matter() -> None:
    facts = {"python": "3.12.0", "executable": "/p", "is_injected": True, "other_sitecustomize": None}
    found, error = parse_facts(b"hello\n\n" + json.dumps({**facts, "torch": None}).encode() + b"\n", 0, b"")
    assert error == ""
    assert found == Interpreter(python="3.12.0", executable="/p", is_injected=True, other_sitecustomize=None)


def test_the_disk_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    found = disk(tmp_path / "a" / "run")
    assert (found.folder, found.write_error) == (str(tmp_path.resolve()), "")
    assert found.write_ns is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write to")
def test_a_folder_that_cannot_be_written_to() -> None:
    assert disk(Path("/proc/self")).write_error


def test_the_kernel_says_whether_its_clock_is_synchronised() -> None:
    is_synchronised, error = kernel_clock()
    assert is_synchronised in (True, False, None)
    assert (error is not None) == bool(is_synchronised)


def test_a_sound_capture(tmp_path: Path) -> None:
    made = MadeJob(tmp_path)
    made.start()
    made.run(0, 2)
    made.end()
    assert {check.state for check in capture_checks(tmp_path)} == {"ok"}


def test_a_rank_that_only_an_older_attempt_had_is_missing(tmp_path: Path) -> None:
    for rank in range(2):
        older = frames(rank, f"a{rank}", [session(rank), end(9)])
        newer = frames(rank, f"b{rank}", [session(rank, wall=99, restart=1), end(200)])
        write(tmp_path, rank, *([older] if rank else [older, newer]))
    found = {check.name: check for check in capture_checks(tmp_path)}["run: ranks"]
    assert (found.state, found.finding) == ("limited", "1 of 2 ranks, 3 sessions in 2 attempts")
    assert found.consequence == "there is no data on rank 1"


def test_what_a_collector_could_not_measure(tmp_path: Path) -> None:
    made = MadeJob(tmp_path)
    made.start(0, 1, 2)
    made.append(1, [{**made.enqueued(1, 0), "lost": 5}], dropped=3)
    made.append(1, [made.step(1, 0)], dropped=4)
    made.append(2, [{"kind": "overhead", "step": 4, "own_share": 0.03, "level": 1, "reason": "3.0% of the step"}])
    made.append(2, [{"kind": "overhead", "step": 9, "own_share": 0.0, "level": 0, "reason": ""}])
    made.append(
        0, [{"kind": "note", "what": "samples_unknown", "count": 2, "reason": "batches have no first dimension"}]
    )
    with made.path(0).open("ab") as file:
        file.write(made.frame(0, [made.step(0, 0)])[:-9])
    made.append(0, [made.step(0, 1)])
    found = {check.name: check for check in capture_checks(tmp_path)}
    assert found["run: ranks"].consequence == "there is no data on rank 3"
    assert found["run: records"].finding == "4 dropped, 5 collectives overwritten, 1 damaged sections"
    assert found["run: overhead"].finding == "rank 2: 3.0% of the step"
    assert found["run: overhead"].consequence.endswith("no collectives and no stacks")
    noted = found["run: samples_unknown"]
    assert (noted.finding, noted.consequence) == ("2 times on rank 0", "batches have no first dimension")


def test_the_verb(lostflops, tmp_path: Path, wrapper) -> None:
    made = MadeJob(tmp_path / "run" / "capture")
    made.start(0)
    outcome = lostflops("doctor", tmp_path / "run", "--json", "--python", wrapper("exit 1"))
    found = json.loads(outcome.out)
    assert outcome.code == 3
    assert found["schema"] == "lostflops.doctor/1"
    states = {row["check"]: row["state"] for row in found["checks"]}
    assert (states["python"], states["folder"], states["run: ranks"]) == ("no", "ok", "limited")
    assert all(row["consequence"] for row in found["checks"] if row["state"] != "ok")


@pytest.mark.parametrize("torch", [TORCH, None])
def test_hints_lead_to_the_demo_and_where_torch_is_to_the_own_job(
    lostflops, monkeypatch: pytest.MonkeyPatch, torch: Torch | None
) -> None:
    machine = replace(MACHINE, interpreter=replace(PYTHON, torch=torch))
    monkeypatch.setattr("lostflops.doctor.probes.look", lambda *_: machine)
    hints = [line for line in lostflops("doctor").out.splitlines() if line.startswith(("Next: ", "Or: "))]
    own = ["Or: lostflops run -- torchrun --nproc-per-node 2 train.py"]
    assert hints == ["Next: lostflops demo", *(own if torch else [])]


def test_the_verb_on_this_machine(lostflops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = lostflops("doctor")
    found, _ = ask(sys.executable, os.environ)
    assert found is not None
    assert outcome.code == (0 if found.torch else 3)
    assert outcome.out.startswith("What can be measured here\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seconds", "30"), "only --cluster has --seconds: add --cluster, or leave it out"),
        (
            ("--device", "cpu", "--topology", "dgx-h100"),
            "only --cluster has --device and --topology: add --cluster, or leave them out",
        ),
        (
            ("--cluster", "--python", sys.executable),
            "--python is not for --cluster, where each rank uses the Python that it was started with",
        ),
    ],
)
def test_an_option_of_the_other_check_is_refused(lostflops, options: tuple[str, ...], message: str) -> None:
    outcome = lostflops("doctor", *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in " ".join(outcome.err.split())
