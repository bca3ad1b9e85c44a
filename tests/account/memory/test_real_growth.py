"""Real jobs: a planted leak is found with its source line, and healthy ones raise nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.collect.jobs import PYTHON, finish, run_words

from lostflops.account.memory.growth import Grown, growth_of
from lostflops.account.memory.read import memories
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.rules import memory_growth
from lostflops.store.run import Run

pytest.importorskip("torch")

JOB = Path(__file__).with_name("growing_job.py")
ONE = 128 * 128 * 4


def line_of(text: str) -> str:
    (number,) = [number for number, line in enumerate(JOB.read_text().splitlines(), 1) if text in line]
    return f"{JOB.name}:{number}"


def recorded(folder: Path, what: str, steps: str) -> tuple[list[Grown], list[str]]:
    """What grows, and what a diagnosis says of it."""
    flags = ("--steps", steps, "--with", "shapes,modules,samples,memory")
    done = finish([*run_words(folder, *flags), PYTHON, str(JOB), what])
    assert done.code == 0, done.stderr
    with Run.open(folder) as run:
        ((events,),) = run.sql("select count(*) from memory").fetchall()
        assert events > 0
        grown = growth_of(run, memories(run))
        return grown, [claim.what for claim in memory_growth.RULE.find(Case(run))]


@pytest.mark.slow
def test_a_list_that_keeps_one_activation_a_step_is_found_with_its_line(tmp_path: Path) -> None:
    (one,), (says,) = recorded(tmp_path / "run", "leak", "8:3")
    assert (one.op, one.module, one.count, one.a_step) == ("aten::linear", "0", 1, ONE)
    assert one.left == (ONE, 2 * ONE, 3 * ONE)
    assert one.holder is not None
    assert (one.holder.name, one.holder.line) == ("kept", line_of("kept.append(hidden"))
    assert f"held by kept at {one.holder.line}: " in says


@pytest.mark.slow
def test_a_graph_that_is_kept_is_found_with_the_line_that_keeps_its_loss(tmp_path: Path) -> None:
    grown, (says,) = recorded(tmp_path / "run", "graph", "8:6")
    line = line_of("losses.append(net(x)")
    assert {(one.holder.line, one.is_by_graph) for one in grown if one.holder is not None} == {(line, True)}
    assert {one.a_step for one in grown} == {ONE}
    assert f"held by losses at {line}" in says


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "steps"), [("plain", "1:4"), ("late", "8:6"), ("varying", "8:6"), ("cache", "8:6"), ("history", "8:3")]
)
def test_a_healthy_job_raises_nothing(tmp_path: Path, what: str, steps: str) -> None:
    """Late is the optimizer's state of parameters that are frozen at first; shapes that vary are larger in every step;
    a cache fills in the first four steps of the window."""
    assert recorded(tmp_path / "run", what, steps) == ([], [])
