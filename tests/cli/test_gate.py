"""`lostflops gate`: exit codes in a shell, in the workflow of the examples, and in a test suite of pytest."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import lostflops as lf
from lostflops.core.errors import UsageError
from made_timed_runs import noisy, recorded

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / "examples" / "github-actions" / "gate.yml"
TURN = 10_000_000_000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs in turns: `main`, `same` as it, and `slow` by a tenth. No step is held up: 40 steps are too few for that."""
    folder = tmp_path_factory.mktemp("made")
    for number in range(9):
        name, level = (("main", 10), ("same", 10), ("slow", 11))[number % 3]
        times = noisy(number, level=level, steps=40, between=0.002, held_up=0)
        recorded(folder / name / f"{number // 3}", times, start=number * TURN)
    return folder


def gate(lostflops, made, candidate, *more):
    return lostflops("gate", "--baseline", made / "main", "--candidate", made / candidate, *more)


def test_the_exit_code_tells(made, lostflops):
    assert gate(lostflops, made, "same").code == 0
    slow = gate(lostflops, made, "slow", "--max-regress", "3%")
    assert slow.code == 1
    assert slow.out.splitlines()[1].startswith("REGRESSED")
    assert gate(lostflops, made, "slow", "--max-regress", "0.2").code == 0
    assert gate(lostflops, made, "slow", "--max-regress", "much").code == 2
    assert gate(lostflops, made, "gone").code == 5


def test_a_limit_of_three_hundred_percent_is_refused(made):
    with pytest.raises(UsageError, match="not a share between 0 and 1"):
        lf.gate(made / "main" / "0", made / "slow" / "0", max_regress=3)


def test_a_limit_below_the_noise_is_refused(made, lostflops):
    done = gate(lostflops, made, "same", "--max-regress", "0.1%", "--json")
    told = json.loads(done.out)
    assert done.code == 3
    assert told["schema"] == "lostflops.gate/1"
    assert (told["outcome"], told["exit_code"], told["max_regress"]) == ("inconclusive", 3, 0.001)
    assert told["noise"] > 0.001
    assert "below the noise of these runs" in told["verdict"]
    assert told["needed_runs"] is None or told["needed_runs"] > 3


def test_one_run_of_each_asks_for_more(made, lostflops):
    done = lostflops("gate", "--baseline", made / "main" / "0", "--candidate", made / "same" / "0")
    assert done.code == 3
    assert re.search(r"record \d+ runs of each", " ".join(done.out.split()))
    worse = lostflops("gate", "--baseline", made / "main" / "0", "--candidate", made / "slow" / "0", "--json")
    assert json.loads(worse.out)["outcome"] in ("regressed", "inconclusive")


@pytest.mark.parametrize("error", [ValueError("a bug"), PermissionError(13, "no", "run")])
def test_a_failure_is_no_regression(made, lostflops, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("lostflops.explain.compare.sides.read_pair", fail)
    assert gate(lostflops, made, "same").code == 70


def shell(folder: Path) -> dict[str, str]:
    """A `lostflops` on the path that runs this checkout."""
    tool = folder / "bin" / "lostflops"
    tool.parent.mkdir(parents=True)
    call = shlex.join([sys.executable, "-c", "from lostflops.cli.main import main; main()"])
    tool.write_text(f'#!/bin/sh\nexec {call} "$@"\n')
    tool.chmod(0o755)
    path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")}


def test_in_a_shell_if(made, tmp_path):
    script = f"""
    for candidate in same slow; do
        if lostflops gate --baseline {made}/main --candidate {made}/$candidate --max-regress 3% > /dev/null; then
            echo "$candidate goes in"
        else
            echo "$candidate: $?"
        fi
    done"""
    done = subprocess.run(["bash", "-ec", script], env=shell(tmp_path), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["same goes in", "slow: 1"]


def test_a_reader_that_leaves_does_not_change_the_code(made, tmp_path):
    script = f"lostflops gate --baseline {made}/main --candidate {made}/slow | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], env=shell(tmp_path), capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("1", "")


def steps_of(workflow: str) -> dict[str, str]:
    """Shell of the named steps, by hand: the block below `run: |` is what is indented further."""
    found = {}
    for name, block in re.findall(r"- name: (.+)\n +run: \|\n((?: {10}.*\n|\n)+)", workflow):
        found[name] = dedent(block)
    return found


@pytest.mark.parametrize(
    ("candidate", "limit", "expected"),
    [
        ("same", "3%", (0, "PASSED")),
        ("slow", "3%", (1, "REGRESSED")),
        ("same", "0.1%", (0, "::warning::")),
    ],
)
def test_the_shell_of_the_workflow(made, tmp_path, candidate, limit, expected):
    """The gate as GitHub runs it (`bash -e`), on runs that stand in for what the step before records."""
    for side, runs in (("baseline", "main"), ("candidate", candidate)):
        for run in sorted((made / runs).iterdir()):
            target = tmp_path / "runs" / f"{side}-{run.name}"
            target.parent.mkdir(exist_ok=True)
            target.symlink_to(run)
    summary = tmp_path / "summary.md"
    environment = {**shell(tmp_path), "MAX_REGRESS": limit, "GITHUB_STEP_SUMMARY": str(summary)}
    script = steps_of(WORKFLOW.read_text())["Gate"]
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    code, said = expected
    assert done.returncode == code, done.stderr
    assert said in done.stdout
    assert said in summary.read_text() or said.startswith("::")


def test_the_workflow_records_both_in_turns(tmp_path):
    """The recording step, with a stand-in for `lostflops` that writes down how it is called."""
    for side in ("baseline", "candidate"):
        (tmp_path / side).mkdir()
    tool = tmp_path / "bin" / "lostflops"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\necho "$(basename "$PWD") $*" >> {tmp_path}/calls\n')
    tool.chmod(0o755)
    workflow = WORKFLOW.read_text()
    environment = {"PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}", "RUNS": "2", "TRAIN": "python train.py"}
    script = steps_of(workflow)["Record both in turns"]
    subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"{side} run --out ../runs/{side}-{number} --steps none -- python train.py"
        for number in (1, 2)
        for side in ("baseline", "candidate")
    ]
    assert set(re.findall(r"^  ([A-Z_]+): ", workflow, re.MULTILINE)) == {"TRAIN", "RUNS", "MAX_REGRESS"}


def test_the_fixture(made, tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["lostflops.pytest_plugin"]\n')
    (tmp_path / "test_speed.py").write_text(
        dedent(f"""
        from pathlib import Path

        MADE = Path({str(made)!r})

        def runs(name):
            return sorted((MADE / name).iterdir())

        def test_same(lostflops_gate):
            told = lostflops_gate(baseline=runs("main"), candidate=runs("same"), max_regress=0.03)
            assert told["outcome"] == "passed"

        def test_slow(lostflops_gate):
            lostflops_gate(baseline=runs("main"), candidate=runs("slow"), max_regress=0.03)

        def test_too_few(lostflops_gate):
            lostflops_gate(baseline=str(MADE / "main" / "0"), candidate=MADE / "same" / "0")

        def test_too_few_is_a_failure(lostflops_gate):
            lostflops_gate(baseline=str(MADE / "main" / "0"), candidate=MADE / "same" / "0", strict=True)
        """)
    )
    words = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*words, "test_speed.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout
    assert re.search(r"2 failed, 1 passed, 1 skipped", done.stdout)
    assert "REGRESSED: a typical step takes" in done.stdout
    assert "PASSED test_speed.py::test_same" in done.stdout
