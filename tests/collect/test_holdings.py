"""Whose memory is whose in real small jobs, against what can be counted by hand."""

from __future__ import annotations

import gc
import sys
import time
import warnings
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import lostflops
from lostflops.collect import export
from lostflops.collect.register import Register
from lostflops.ingest.ingest import ingest
from lostflops.store.run import Run
from tests.collect.captured import records
from tests.collect.jobs import PYTHON, finish, recorded

pytest.importorskip("torch")

import torch

from tests.collect import holdings_job

OPTIONS = ("memory", "modules")
Row = dict[str, Any]


def forget_models() -> None:
    """Let go of what tests in this process trained before; compiled code keeps its models until it is reset."""
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()
    gc.collect()


@pytest.fixture(autouse=True, scope="module")
def _models_of_other_files_are_gone() -> None:
    forget_models()


@pytest.fixture(autouse=True)
def _models_of_other_tests_are_gone() -> None:
    forget_models()


def network(width: int = 32) -> Any:
    """Two layers of which one is normalised, and a tied one."""
    torch.manual_seed(0)
    first, last = torch.nn.Linear(16, width), torch.nn.Linear(width, 16)
    tied = torch.nn.Linear(16, width)
    tied.weight = first.weight
    return torch.nn.Sequential(first, torch.nn.BatchNorm1d(width), torch.nn.ReLU(), last, tied)


def loader(count: int) -> Any:
    data = torch.utils.data.TensorDataset(torch.ones(8 * count, 16))
    return torch.utils.data.DataLoader(data, batch_size=8)


def train(folder: Path, model: Any, optimizer: Any, inside: Any = lambda out: None, *, window: str = "3:2") -> None:
    with lostflops.record(folder, steps=window, options=OPTIONS):
        for (batch,) in loader(8):
            optimizer.zero_grad()
            out = model(batch)
            inside(out)
            out.sum().backward()
            optimizer.step()


@pytest.fixture
def raw_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reducer runs when no one else wants a processor, and tests would wait for it; rows are the same without."""
    monkeypatch.setattr("lostflops.collect.windows.TraceForm", lambda *_: export.RAW)


@pytest.fixture(scope="module")
def adam(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, list[Row]]:
    """A job that is recorded and reduced as any other, its model, and its rows."""
    folder, model = tmp_path_factory.mktemp("adam"), network()
    train(folder, model, torch.optim.AdamW(model.parameters()))
    return folder, model, holdings(folder)


def holdings(folder: Path) -> list[Row]:
    end = time.monotonic() + 240  # a busy machine lets the reducer wait: it runs only where nothing else wants to
    while export.pending(folder / "capture") and time.monotonic() < end:
        time.sleep(0.01)
    assert not export.pending(folder / "capture"), "the trace is not complete"
    ingest([folder / "capture"], folder / "run", workers=1)
    with Run.open(folder / "run") as run:
        found = run.table("holdings")
        return [dict(zip(found.columns, row, strict=True)) for row in found.order("time").fetchall()]


def events(folder: Path) -> dict[int, list[tuple[int, int]]]:
    """Time and bytes of allocations and frees by address, once `holdings` has read the run."""
    found: dict[int, list[tuple[int, int]]] = {}
    with Run.open(folder / "run") as run:
        for address, at, change in run.sql("select address, time, bytes from memory order by time").fetchall():
            found.setdefault(address, []).append((at, change))
    return found


def bytes_by_owner(rows: list[Row]) -> dict[str | None, int]:
    found: Counter[str | None] = Counter()
    for row in rows:
        found[row["owner"]] += row["bytes"]
    return dict(found)


def size(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_what_was_there_equals_what_can_be_counted(adam: tuple[Path, Any, list[Row]]) -> None:
    _, model, rows = adam
    found = bytes_by_owner([row for row in rows if row["before"]])
    parameters = size(model.parameters())
    assert found["parameters"] == found["gradients"] == parameters
    assert found["optimizer_state"] == 2 * parameters + 4 * len(list(model.parameters()))
    assert found["buffers"] == size(model.buffers())
    assert found["batches"] == 8 * 16 * 4
    names = [row["name"] for row in rows if row["owner"] == "parameters"]
    assert sorted(names) == ["0.bias", "0.weight", "1.bias", "1.weight", "3.bias", "3.weight", "4.bias"]
    assert {row["device_type"] for row in rows} == {0}
    assert {row["device_index"] for row in rows} == {-1}


def test_what_comes_in_a_step_is_seen_in_it(adam: tuple[Path, Any, list[Row]]) -> None:
    folder, model, rows = adam
    steps = [step for step in records(folder, "step")[0] if step["step"] in (3, 4)]
    for step in steps:
        inside = [row for row in rows if not row["before"] and step["start"] < row["time"] < step["stop"]]
        found = bytes_by_owner(inside)
        assert found["gradients"] == size(model.parameters())
        assert found["batches"] == 8 * 16 * 4
        gone = bytes_by_owner([row for row in rows if row["gone"] and step["start"] < row["gone"] < step["stop"]])
        assert gone["gradients"] == size(model.parameters())
        assert "optimizer_state" not in gone
    assert not [row for row in rows if row["gone"] and row["owner"] in ("parameters", "buffers")]
    assert all(row["gone"] > row["time"] for row in rows if row["gone"])


def test_what_comes_and_goes_lies_between_its_allocation_and_its_free(adam: tuple[Path, Any, list[Row]]) -> None:
    folder, _, rows = adam
    at = events(folder)
    came = [row for row in rows if not row["before"] and row["owner"] in ("gradients", "batches")]
    assert len(came) == 2 * 8
    for row in came:
        last = [change for when, change in at[row["address"]] if when < row["time"]][-1]
        assert last == row["bytes"]
        if row["gone"]:
            assert -row["bytes"] in [change for when, change in at[row["address"]] if row["time"] < when < row["gone"]]
    assert len([row for row in came if row["gone"]]) == 8


@pytest.mark.usefixtures("raw_traces")
def test_state_that_an_optimizer_makes_in_the_window_is_its_own(tmp_path: Path) -> None:
    model = network()
    with lostflops.record(tmp_path, steps="2:2", options=OPTIONS):
        for step, (batch,) in enumerate(loader(6)):
            momentum = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9) if step in (0, 3) else momentum  # noqa: F821
            momentum.zero_grad()
            model(batch).sum().backward()
            momentum.step()
    rows = [row for row in holdings(tmp_path) if row["owner"] == "optimizer_state"]
    assert size(model.parameters()) == bytes_by_owner([row for row in rows if row["before"]])["optimizer_state"]
    assert size(model.parameters()) == bytes_by_owner([row for row in rows if not row["before"]])["optimizer_state"]
    assert all((row["gone"] is not None) == row["before"] for row in rows)


def test_nothing_is_alive_because_of_us(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    dropped: list[Any] = []
    with lostflops.record(tmp_path, steps="2:100", options=("memory",)):
        for (batch,) in loader(8):
            optimizer.zero_grad()
            out = model(batch)
            dropped += [weakref.ref(out), weakref.ref(batch)]
            out.sum().backward()
            optimizer.step()
            del out, batch
            assert [reference() for reference in dropped] == [None] * len(dropped)
        gone = [weakref.ref(model), weakref.ref(model[0].weight)]
        del model, optimizer
        gc.collect()
        assert [reference() for reference in gone] == [None, None]


@pytest.mark.usefixtures("raw_traces")
def test_parameters_that_are_no_leaves_are_not_asked_for_gradients(tmp_path: Path) -> None:
    """Torch would warn the program of it."""
    model = network()
    made = torch.nn.Parameter(torch.ones(4))
    model._parameters["made"] = made * 1
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train(tmp_path, model, torch.optim.SGD([p for p in model.parameters() if p.is_leaf], 0.1))
    assert not [one for one in said if ".grad attribute" in str(one.message)]
    assert {row["owner"] for row in holdings(tmp_path)} >= {"parameters", "gradients"}


def test_parameters_of_a_model_that_is_given_up_are_gone() -> None:
    register = Register()
    given_up = torch.nn.Parameter(torch.ones(8))
    register.see([("parameters", "teacher.weight", given_up)])
    ((number, *_),) = register.take()[0]
    del given_up
    assert not register.poll_all()
    assert register.take()[1] == [number]


def test_of_many_tensors_of_nobody_the_largest_are_asked_about_most_often() -> None:
    register = Register()
    kept = [torch.empty(count) for count in range(1, 1201)]
    register.see_others(kept)
    register.take()
    del kept[1190:], kept[:10]
    register.poll()
    assert len(register.take()[1]) == 10
    register.poll_all()
    assert len(register.take()[1]) == 10


@pytest.mark.slow
@pytest.mark.usefixtures("raw_traces")
def test_storages_that_were_emptied_are_gone(tmp_path: Path) -> None:
    model, kept = network(), torch.ones(1000)
    address = kept.untyped_storage().data_ptr()

    passes = iter(range(8))

    def empty(_: Any) -> None:
        if next(passes) == 4:
            kept.untyped_storage().resize_(0)

    train(tmp_path, model, torch.optim.SGD(model.parameters(), 0.1), empty)
    [row] = [row for row in holdings(tmp_path) if row["address"] == address and row["before"]]
    [step] = [step for step in records(tmp_path, "step")[0] if step["step"] == 4]
    assert (row["owner"], row["bytes"]) == (None, 4000)
    assert step["start"] < row["gone"] < step["stop"]


def test_an_error_of_ours_ends_the_rows_and_nothing_else(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("lostflops.collect.register.bytes_left", lambda _: 1 / 0)
    model = network()
    train(tmp_path, model, torch.optim.SGD(model.parameters(), 0.1))
    states = [record["state"] for record in records(tmp_path, "window")[0]]
    assert states[:3] == ["planned", "started", "stopped"]  # whether its trace is written by then is chance
    assert ["ZeroDivisionError" in record["reason"] for record in records(tmp_path, "note")[0]] == [True]
    assert len(records(tmp_path, "step")[0]) == 8


def test_a_window_without_memory_registers_nothing(tmp_path: Path) -> None:
    model = network()
    with lostflops.record(tmp_path, steps="2:2", options=("modules",)):
        for (batch,) in loader(6):
            model(batch).sum().backward()
            torch.optim.SGD(model.parameters(), 0.1).step()
    assert records(tmp_path, "holdings") == {0: []}


@pytest.mark.usefixtures("raw_traces")
def test_a_list_that_keeps_activations_is_named_with_its_line(tmp_path: Path) -> None:
    model, kept = network(), []

    def keep(out: Any) -> None:
        kept.append(out.detach())

    train(tmp_path, model, torch.optim.SGD(model.parameters(), 0.1), keep)
    named = [row for row in holdings(tmp_path) if row["name"] == "kept"]
    assert [row["owner"] for row in named] == [None] * 5
    assert sorted(row["before"] for row in named) == [False] * 2 + [True] * 3
    assert {row["bytes"] for row in named} == {8 * 32 * 4}
    line = keep.__code__.co_firstlineno + 1
    assert {row["line"].rpartition("/")[2] for row in named} == {f"test_holdings.py:{line}"}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "share"), [("replicated", 1), ("sharded", 2)])
def test_ranks_hold_what_is_theirs(tmp_path: Path, kind: str, share: int) -> None:
    environment = recorded(tmp_path / "capture", steps="3:2", options=frozenset(OPTIONS))
    launch = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = finish([*launch, str(Path(__file__).with_name("holdings_job.py")), kind], environment)
    assert done.code == 0, done.stderr.decode()
    parameters = 4 * 2 * (holdings_job.WIDTH + 1) * holdings_job.WIDTH // share
    rows = holdings(tmp_path)
    for rank in range(2):
        found = bytes_by_owner([row for row in rows if row["rank"] == rank and row["before"]])
        assert found["parameters"] == found["gradients"] == parameters
        assert found["optimizer_state"] == 2 * parameters + 4 * 4
        steps = [step for step in records(tmp_path, "step")[rank] if step["step"] in (3, 4)]
        for step in steps:
            new = [row for row in rows if row["rank"] == rank and not row["before"]]
            inside = [row for row in new if step["start"] < row["time"] < step["stop"]]
            assert bytes_by_owner(inside)["gradients"] == parameters


@pytest.mark.slow
@pytest.mark.usefixtures("raw_traces")
def test_an_input_that_is_there_from_the_start_is_a_batch(tmp_path: Path) -> None:
    model, inputs, other = network(), torch.ones(8, 16), torch.ones(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with lostflops.record(tmp_path, steps="3:2", options=OPTIONS):
        for _ in range(8):
            optimizer.zero_grad()
            model(inputs).sum().backward()
            optimizer.step()
    owners = {row["address"]: row["owner"] for row in holdings(tmp_path) if row["before"]}
    assert owners[inputs.data_ptr()] == "batches"
    assert owners[other.data_ptr()] is None
