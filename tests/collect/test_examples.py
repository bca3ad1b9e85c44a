"""The examples as users run them: alone, under `lostflops run`, and with what records from within."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lostflops.account.align.mesh import recognise
from lostflops.collect.steps import PHASES
from lostflops.explain.analyze.report import report
from lostflops.store.run import Run
from tests.collect.captured import records, share

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 8
AFTER_THE_WINDOW = 22
"""Steps enough for collectives after the window: without them, its last collective has no group."""

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


@dataclass(frozen=True)
class Example:
    script: str
    ranks: int
    microbatches: int = 1
    samples: int | None = None
    needs: tuple[str, ...] = ()
    launches_itself: bool = False
    options: tuple[str, ...] = ()
    mesh: str | None = None

    @property
    def command(self) -> list[str]:
        script = [str(EXAMPLES / self.script), "--steps", str(STEPS), *self.options]
        if self.launches_itself:
            return [sys.executable, *script, "--ranks", str(self.ranks)]
        return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(self.ranks), *script]


UNCHANGED = (
    Example("ddp_transformer.py", ranks=2, samples=8),
    Example("fsdp2_transformer.py", ranks=4),
    Example("tensor_parallel.py", ranks=4),
    Example("pipeline_1f1b.py", ranks=4, microbatches=8),
    Example("zero_optimizer.py", ranks=4),
    Example("huggingface_trainer.py", 2, microbatches=2, samples=8, needs=("transformers", "accelerate")),
    Example("lightning_module.py", 2, microbatches=2, samples=512, needs=("lightning",), launches_itself=True),
    Example("accelerate_loop.py", ranks=2, microbatches=2, samples=512, needs=("accelerate",)),
)
FRAMEWORKS = (
    *(
        Example("deepspeed_zero.py", 2, microbatches=2, needs=("deepspeed",), options=("--stage", stage), mesh="dp 2")
        for stage in "123"
    ),
    Example(
        "megatron_core.py", 4, microbatches=8, needs=("megatron.core",),
        options=("--tp", "2", "--pp", "2", "--chunks", "2"), mesh="tp 2 x pp 2",
    ),
    Example(
        "megatron_core.py", 4, microbatches=4, needs=("megatron.core",), options=("--ep", "2"), mesh="ep 2 x dp 2"
    ),
)  # fmt: skip
"""Frameworks that run the passes themselves, and the mesh that must be found."""


THEMSELVES = (
    ("plain_loop.py", "--run", (), 2),
    ("huggingface_trainer.py", "--callback", ("transformers", "accelerate"), 2),
    ("lightning_module.py", "--callback", ("lightning",), 2),
    ("accelerate_loop.py", "--tracker", ("accelerate",), 2),
)
"""Scripts that record themselves when told to."""
_DATED = re.compile(r"\[\d{4}-\d\d-\d\d ")
WITH_TESTS_OF_THEIR_OWN = {"profiler_handler.py", "relu_mask/train.py"}


def finished(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def recorded(run: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    return finished([sys.executable, "-m", "lostflops", "run", "--out", str(run), "--", *command])


def is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def needs(*packages: str) -> None:
    if missing := [name for name in packages if not is_installed(name)]:
        pytest.skip(f"{', '.join(missing)} is not installed")


def without_times(output: str) -> str:
    """Remove what differs between two runs: times, the connections that gloo prints before torch 2.11, and dated
    lines of DeepSpeed, which other frameworks import if it is installed."""
    lines = (line for line in output.splitlines(keepends=True) if "connected peer ranks" not in line)
    output = "".join(line for line in lines if not _DATED.match(line))
    return re.sub(r"'train_(runtime|samples_per_second|steps_per_second)': '[^']*'", "", output)


def check_phases(steps: list[dict[str, Any]]) -> None:
    for step in steps:
        assert 0 < sum(step[phase] or 0 for phase in PHASES) <= step["stop"] - step["start"]
    assert all(share(steps, phase) > 0.001 for phase in ("forward", "backward", "optimizer"))
    assert share(steps, "forward") + share(steps, "backward") + share(steps, "optimizer") > 0.3


def check_whole_job(folder: Path, ranks: int) -> None:
    """Each rank's lines sum to the time from the start of the command to its end, and nothing of it is unknown."""
    with Run.open(folder) as run:
        whole = {row["rank"]: row for row in report(run).to_json()["life_by_rank"]}
    command = records(folder, "job")
    assert sorted(whole) == list(range(ranks))
    for rank, row in whole.items():
        (told,) = [one["value"] for one in command[rank] if one["key"] == "command"]
        assert sum(row["lines"].values()) == row["wall_ns"] == told["stop"] - told["start"]
        assert row["lines"].get("unknown", 0) < 0.02 * row["wall_ns"]


@pytest.mark.slow
@pytest.mark.parametrize("example", UNCHANGED, ids=lambda example: example.script)
def test_a_script_is_recorded_as_it_is(tmp_path: Path, example: Example) -> None:
    needs(*example.needs)
    alone = finished(example.command)
    watched = recorded(tmp_path / "run", example.command)
    assert (alone.returncode, watched.returncode) == (0, 0), alone.stderr + watched.stderr
    assert without_times(watched.stdout) == without_times(alone.stdout)

    steps = records(tmp_path / "run", "step")
    assert sorted(steps) == list(range(example.ranks))
    for of_rank in steps.values():
        assert [step["step"] for step in of_rank] == list(range(STEPS))
        assert {step["microbatches"] for step in of_rank} == {example.microbatches}
        assert {step["samples"] for step in of_rank[1:-1]} == {example.samples}
        check_phases(of_rank)
    notes = [note["what"] for of_rank in records(tmp_path / "run", "note").values() for note in of_rank]
    assert "collector_errors" not in notes
    check_whole_job(tmp_path / "run", example.ranks)


@pytest.mark.slow
@pytest.mark.parametrize("example", FRAMEWORKS, ids=lambda example: " ".join((example.script, *example.options)))
def test_a_framework_is_recorded_with_its_steps_mesh_and_parameters(tmp_path: Path, example: Example) -> None:
    needs(*example.needs)
    command = [*example.command, "--steps", str(AFTER_THE_WINDOW)]
    watched = recorded(tmp_path / "run", command)
    assert watched.returncode == 0, watched.stderr
    steps = records(tmp_path / "run", "step")
    assert sorted(steps) == list(range(example.ranks))
    for of_rank in steps.values():
        assert [step["step"] for step in of_rank] == list(range(AFTER_THE_WINDOW))
        assert {step["microbatches"] for step in of_rank} == {example.microbatches}
        assert all(share(of_rank, phase) > 0.001 for phase in ("forward", "backward", "optimizer"))
    with Run.open(tmp_path / "run") as run:
        mesh = " x ".join(f"{kind} {size}" for kind, size in recognise(run).dimensions)
        ranks = run.sql("select count(distinct rank) from parameters where bytes > 0").fetchall()
        unnamed = run.sql("select count(*) from collectives where group_id is null").fetchall()
        own = [loss["evidence"] for loss in report(run).to_json()["losses"]]
    assert mesh == example.mesh
    assert ranks == [(example.ranks,)]
    assert unnamed == [(0,)]
    assert not any("typing_extensions" in evidence for evidence in own)


@pytest.mark.slow
def test_a_slow_loader_shows_as_waiting_for_data(tmp_path: Path) -> None:
    command = [*UNCHANGED[0].command, "--slow-loader", "300", "--steps", "14"]
    assert recorded(tmp_path / "run", command).returncode == 0
    for of_rank in records(tmp_path / "run", "step").values():
        assert share(of_rank, "data") > 0.5
        assert all(step["data"] >= 300_000_000 for step in of_rank)

    with Run.open(tmp_path / "run") as run:
        told = report(run).to_json()
        assert run.sql("select rank, count(*) from timings group by rank order by rank").fetchall() == [
            (0, 14),
            (1, 14),
        ]
        layers = "select count(*) from events where kind = 'op' and module like 'layers.1%'"
        assert run.sql(layers).fetchall()[0][0] > 0
        assert run.sql("select count(*) from events where kind = 'op' and name like 'lostflops%'").fetchall() == [(0,)]
    assert told["losses"][0]["line"] == "idle.data"
    assert "Tokens.__getitem__ ddp_transformer.py" in told["losses"][0]["evidence"]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "flag", "packages", "microbatches"), THEMSELVES)
def test_a_script_records_itself(
    tmp_path: Path, script: str, flag: str, packages: tuple[str, ...], microbatches: int
) -> None:
    needs(*packages)
    command = [sys.executable, str(EXAMPLES / script), "--steps", str(STEPS)]
    watched = finished([*command, flag, str(tmp_path / "run")])
    assert watched.returncode == 0, watched.stderr
    (steps,) = records(tmp_path / "run", "step").values()
    assert [step["microbatches"] for step in steps] == [microbatches] * STEPS
    check_phases(steps)


@pytest.mark.slow
def test_a_script_that_records_itself_goes_to_the_run_of_the_command(tmp_path: Path) -> None:
    inner = [sys.executable, str(EXAMPLES / "plain_loop.py"), "--steps", str(STEPS), "--run", str(tmp_path / "inner")]
    assert recorded(tmp_path / "outer", inner).returncode == 0
    assert len(records(tmp_path / "outer", "step")[0]) == STEPS
    assert not (tmp_path / "inner").exists()


@pytest.mark.slow
def test_the_profilers_windows_lie_in_the_run(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "profiler_handler.py"), "--steps", "20", "--run", str(tmp_path / "run")]
    assert finished(command).returncode == 0
    names = sorted(path.name for path in (tmp_path / "run" / "capture").iterdir())
    assert names == ["rank-00000.w0000.json.gz", "rank-00000.w0001.json.gz"]


@pytest.mark.slow
@pytest.mark.parametrize("relu", ["plain", "mask"])
def test_either_relu_is_recorded(tmp_path: Path, relu: str) -> None:
    command = [sys.executable, str(EXAMPLES / "relu_mask" / "train.py"), "--steps", str(STEPS), "--relu", relu]
    assert recorded(tmp_path / "run", command).returncode == 0
    assert len(records(tmp_path / "run", "step")[0]) == STEPS


def test_every_example_is_run_and_listed() -> None:
    scripts = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py")}
    run = (
        {example.script for example in (*UNCHANGED, *FRAMEWORKS)}
        | {script for script, *_ in THEMSELVES}
        | WITH_TESTS_OF_THEIR_OWN
    )
    assert scripts == run
    rows = [row for row in (EXAMPLES / "README.md").read_text(encoding="utf-8").splitlines() if row.startswith("| [")]
    assert {re.findall(r"\]\(([^)]+)\)", row)[0] for row in rows} == scripts
    assert all("`lostflops " in row.split("|")[5] for row in rows)
