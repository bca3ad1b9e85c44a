"""The verb around the measurement: launchers are scripts here, and calibrations are written by hand."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lostflops.cli.verbs import calibrate
from lostflops.testing import SyntheticCluster, store

SIZES = [1024 << power for power in range(14)]
ALPHA, BETA = 50_000, 0.08


@pytest.fixture
def document() -> dict[str, Any]:
    """Four ranks on one host: 50 us and 0.08 ns per byte."""
    shape = {"op": "all_reduce", "level": "host", "ranks": 4, "hosts": 1, "at_once": 1, "dtype": "float32"}
    rows = [
        {**shape, "bytes": size, "ns": [round(ALPHA + BETA * size) + shift for shift in range(3)]} for size in SIZES
    ]
    return {
        "schema": "lostflops.calibration/1",
        "backend": "gloo",
        "device": "cpu",
        "world_size": 4,
        "collectives": rows,
    }


@pytest.fixture
def saved(tmp_path: Path, document: dict[str, Any]) -> Path:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(document))
    return path


def launcher(folder: Path, body: str) -> list[str]:
    """A command that notes its words and then does as it is told; $out is the file to write."""
    script = folder / "launch"
    words = 'printf "%s\\n" "$@" > "$0.words"\nwhile [ "$1" != --out ]; do shift; done\nout="$2"\n'
    script.write_text(f"#!/bin/sh\n{words}{body}\n")
    script.chmod(0o755)
    return [str(script), "-n", "4"]


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "lostflops", "calibrate", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_launcher_starts_the_module_and_the_result_is_shown(tmp_path: Path, saved: Path) -> None:
    words = launcher(tmp_path, f'cp {saved} "$out"')
    done = run(tmp_path, "--out", "new.json", "--seconds", "5", "--only", "all_reduce", "--", *words)
    assert done.returncode == 0, done.stderr
    out = str(tmp_path / "new.json")
    started = ["-n", "4", "-m", "lostflops.collect.calibrate", "--out", out, "--seconds", "5", "--only", "all_reduce"]
    assert (tmp_path / "launch.words").read_text().splitlines() == started
    assert "wrote new.json" in done.stderr
    assert "all_reduce" in done.stdout
    assert done.stdout.endswith("lostflops scale RUN --calibration new.json\n")


def test_json_is_all_that_is_printed(tmp_path: Path, saved: Path) -> None:
    done = run(tmp_path, "--json", "--", *launcher(tmp_path, f'cp {saved} "$out"'))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"].startswith("lostflops.calibrate/")


def test_json_stays_json_when_the_launcher_prints(tmp_path: Path, saved: Path) -> None:
    words = launcher(tmp_path, f'echo NCCL version 2.28.3; cp {saved} "$out"')
    finished = run(tmp_path, "--json", "--out", "out.json", "--", *words)
    assert json.loads(finished.stdout)["schema"] == "lostflops.calibrate/1"
    assert "NCCL version 2.28.3" in finished.stderr


def test_a_folder_is_no_file_to_write(tmp_path: Path) -> None:
    finished = run(tmp_path, "--out", str(tmp_path), "--", *launcher(tmp_path, "exit 0"))
    assert finished.returncode == 2
    assert finished.stderr == f"lostflops: {tmp_path} is a folder; --out needs a file.\n"
    assert not (tmp_path / "launch.words").exists(), "nothing was measured in vain"


def test_what_is_there_is_not_written_over(tmp_path: Path, saved: Path) -> None:
    (tmp_path / "calibration.json").write_text("mine")
    done = run(tmp_path, "--", *launcher(tmp_path, f'cp {saved} "$out"'))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "calibration.json").read_text() == "mine"
    assert (tmp_path / "calibration-2.json").exists()


def test_rank_0_may_be_elsewhere(tmp_path: Path, saved: Path) -> None:
    words = launcher(tmp_path, "true")
    done = run(tmp_path, "--out", str(saved), "--", *words)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(f"lostflops: {words[0]} succeeded, but there is no new {saved} on this host. ")
    assert done.stderr.endswith(" on another host, the file is there; otherwise no ranks were started.\n")


def test_a_measurement_that_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "--", *launcher(tmp_path, "echo no such device >&2; exit 7"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("no such device\nlostflops: ")
    assert "failed with exit code 7 (see its output above); nothing was written" in done.stderr
    assert not (tmp_path / "calibration.json").exists()


def test_a_launcher_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path, "--", "torchwalk", "-n", "4")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "lostflops: command not found: 'torchwalk'; after --, give the launcher that starts the ranks"
    )


def test_without_torch_a_launcher_is_needed(lostflops, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(calibrate, "find_spec", lambda name: None)
    outcome = lostflops("calibrate", "--out", tmp_path / "x.json")
    assert outcome.code == 2
    assert "torch is not installed for" in outcome.err


def test_show(lostflops, saved: Path) -> None:
    outcome = lostflops("calibrate", "--show", saved)
    assert outcome.code == 0
    assert "all_reduce" in outcome.out
    assert outcome.out.endswith(f"lostflops scale RUN --calibration {saved}\n")


def test_show_measures_nothing(lostflops, saved: Path) -> None:
    outcome = lostflops("calibrate", "--show", saved, "torchrun")
    assert outcome.code == 2
    assert "--show and a launcher" in outcome.err


def test_a_run_teaches_what_its_collectives_take(lostflops, tmp_path: Path) -> None:
    target, declared = tmp_path / "learned.json", SyntheticCluster(ranks=4, ranks_per_host=2, tensor_parallel=2)
    run = store(declared.generate(), tmp_path / "run", host_names=True)
    outcome = lostflops("calibrate", "--learn", run, "--out", target, "--json")
    assert outcome.code == 0, outcome.err
    rows = json.loads(target.read_text())["collectives"]
    assert {(row["op"], row["level"]) for row in rows} == {("all_reduce", "host"), ("all_reduce", "across")}
    assert "Learned from" in json.loads(outcome.out)["notes"][-1]


def test_a_run_is_compared_with_a_calibration(lostflops, saved: Path, document: dict[str, Any], tmp_path: Path) -> None:
    """One size, which makes no curve of its own, at twice the time that the calibration tells."""
    row = {**document["collectives"][0], "bytes": 1_000_000, "ns": [round(2 * (ALPHA + BETA * 1_000_000))] * 3}
    learned = tmp_path / "learned.json"
    learned.write_text(json.dumps({**document, "collectives": [row]}))
    outcome = lostflops("calibrate", "--show", learned, "--against", saved, "--json")
    (told,) = json.loads(outcome.out)["compared"]
    assert told["differs"]
    assert told["ratio"] == pytest.approx(2, rel=0.01)
    assert "times here are 2.00x those of the other" in json.loads(outcome.out)["verdict"]


def test_a_run_of_one_rank_teaches_nothing(lostflops, tmp_path: Path) -> None:
    run = store(SyntheticCluster(ranks=1).generate(), tmp_path / "run")
    outcome = lostflops("calibrate", "--learn", run, "--out", tmp_path / "x.json")
    assert outcome.code == 3
    assert "no collectives to learn from in " in outcome.err
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize(("text", "said"), [("{}", "not a calibration"), ("no json", "not a calibration")])
def test_show_of_something_else(lostflops, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "other").write_text(text)
    outcome = lostflops("calibrate", "--show", tmp_path / "other")
    assert outcome.code == 4
    assert said in outcome.err


def test_show_of_nothing(lostflops, tmp_path: Path) -> None:
    outcome = lostflops("calibrate", "--show", tmp_path / "nothing")
    assert outcome.code != 0
    assert str(tmp_path / "nothing") in outcome.err


def test_a_plot(lostflops, saved: Path, tmp_path: Path) -> None:
    assert lostflops("calibrate", "--show", saved, "--plot", tmp_path / "plot.svg").code == 0
    assert "<svg" in (tmp_path / "plot.svg").read_text()


def test_logs_come_last(lostflops, tmp_path: Path) -> None:
    outcome = lostflops("calibrate", "--nccl-tests", "a.log", "b.log", "--out", tmp_path / "x.json")
    assert outcome.code == 2
    assert "--out comes after the logs" in outcome.err
