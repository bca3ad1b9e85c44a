"""Names of modules in a trace: balanced, without those of wrappers, and unseen by the compiler."""

from __future__ import annotations

import copy
import json
import os
import pickle
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.filterwarnings("ignore"),  # dynamo turns warnings of torch itself into errors
]
if find_spec("torch") is not None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    from lostflops.collect.modules import ModuleRanges
    from lostflops.collect.profiling import ProfilerWindow

PREFIX = "lostflops.module: "


class Recorded:
    """What stands in the trace of what happens inside, per module and as pairs of op and innermost module."""

    def __init__(self, folder: Path, *roots: Any) -> None:
        self._file, self._ranges = folder / "trace.json", ModuleRanges(list(roots))
        self._profile = ProfilerWindow(frozenset(), 0, 1)

    def __enter__(self) -> Recorded:
        self._profile.prepare()
        self._profile.start()
        self._ranges.attach()
        return self

    def __exit__(self, *_: object) -> None:
        self._ranges.detach()
        self._profile.stop().save(os.fsencode(self._file))
        self.events = [e for e in json.loads(self._file.read_text())["traceEvents"] if e.get("ph") == "X"]

    def calls(self) -> dict[str, int]:
        return dict(Counter(e["name"].removeprefix(PREFIX) for e in self.events if e["name"].startswith(PREFIX)))

    def modules_of(self, op: str) -> list[str]:
        return [self._innermost(event) for event in self.events if event["name"] == op]

    def _innermost(self, event: dict[str, Any]) -> str:
        around = [
            range_
            for range_ in self.events
            if range_["name"].startswith(PREFIX)
            and range_["tid"] == event["tid"]
            and range_["ts"] <= event["ts"]
            and event["ts"] + event["dur"] <= range_["ts"] + range_["dur"]
        ]
        return min(around, key=lambda r: r["dur"])["name"].removeprefix(PREFIX) if around else ""


class Block(nn.Module if find_spec("torch") else object):
    def __init__(self, is_checkpointed: bool = False) -> None:
        super().__init__()
        self.up, self.down, self.is_checkpointed = nn.Linear(4, 8), nn.Linear(8, 4), is_checkpointed

    def work(self, x: Any) -> Any:
        return self.down(torch.relu(self.up(x)))

    def forward(self, x: Any) -> Any:
        return checkpoint(self.work, x, use_reentrant=False) if self.is_checkpointed else self.work(x)


class Failing(nn.Module if find_spec("torch") else object):
    def forward(self, x: Any) -> Any:
        raise ValueError("in forward")


def stack(*blocks: Any) -> Any:
    return nn.Sequential(*(blocks or (Block(), Block())))


def test_each_op_stands_in_its_module(tmp_path: Path) -> None:
    model = stack()
    with Recorded(tmp_path, model) as recorded:
        model(torch.ones(2, 4)).sum().backward()
    assert recorded.calls() == dict.fromkeys(["(root)", "0", "0.up", "0.down", "1", "1.up", "1.down"], 1)
    assert recorded.modules_of("aten::addmm") == ["0.up", "0.down", "1.up", "1.down"]
    assert recorded.modules_of("aten::relu") == ["0", "1"]


def test_nothing_stays_on_the_modules(tmp_path: Path) -> None:
    model = stack()
    with Recorded(tmp_path, model):
        assert model[0]._forward_hooks
        copied, saved = copy.deepcopy(model), pickle.dumps(model)
    copied(torch.ones(2, 4))
    pickle.loads(saved)(torch.ones(2, 4))
    assert b"lostflops" not in saved
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_checkpoints_run_modules_again_inside_backward(tmp_path: Path) -> None:
    model = stack(Block(is_checkpointed=True), Block())
    with Recorded(tmp_path, model) as recorded:
        model(torch.ones(2, 4, requires_grad=True)).sum().backward()
    assert recorded.calls() == {"(root)": 1, "0": 1, "0.up": 2, "0.down": 2, "1": 1, "1.up": 1, "1.down": 1}
    # The last module of a checkpoint is not run to its end again: what it would compute is not needed.
    assert Counter(recorded.modules_of("aten::relu")) == {"0": 1, "": 1, "1": 1}


def test_an_error_in_forward_leaves_no_range_open(tmp_path: Path) -> None:
    model = stack(Block(), Failing())
    with Recorded(tmp_path, model) as recorded:
        with pytest.raises(ValueError, match="in forward"):
            model(torch.ones(2, 4))
        torch.ones(3).cos()
    assert recorded.modules_of("aten::cos") == [""]
    assert recorded.calls()["1"] == 1


def test_wrappers_have_no_name(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(stack())
        with Recorded(tmp_path, model) as recorded:
            model(torch.ones(2, 4)).sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    assert recorded.calls() == dict.fromkeys(["(root)", "0", "0.up", "0.down", "1", "1.up", "1.down"], 1)


def whole(model: Any) -> Any:
    return torch.compile(model, backend="aot_eager")


def in_place(model: Any) -> Any:
    model.compile(backend="aot_eager")
    return model


def one_block(model: Any) -> Any:
    model[0].compile(backend="aot_eager")
    return model


@pytest.mark.parametrize(
    ("compile_it", "expected"),
    [
        (whole, {"(root)": 2}),
        (in_place, {"(root)": 2}),
        (one_block, {"(root)": 2, "0": 2, "1": 2, "1.up": 2, "1.down": 2}),
    ],
)
@pytest.mark.parametrize("is_warm", [True, False])
def test_a_compiled_region_is_one_module_and_compiled_as_ever(
    tmp_path: Path, compile_it: Any, expected: dict[str, int], is_warm: bool
) -> None:
    plain, recorded = _counters_of(None, compile_it, is_warm), Recorded(tmp_path)
    watched = _counters_of(recorded, compile_it, is_warm)
    assert watched == plain
    assert plain["graph_break"] == {}
    assert recorded.calls() == expected


def test_a_compiled_function_of_modules_is_compiled_as_ever(tmp_path: Path) -> None:
    counters = []
    for recorded in (None, Recorded(tmp_path)):
        model = stack()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        update = torch.compile(optimizer.step, backend="aot_eager")

        def forward(x: Any, model: Any = model) -> Any:
            y = model[0](x)
            torch._dynamo.graph_break()
            return model[1](y).sum()

        forward = torch.compile(forward, backend="aot_eager")

        def step(forward: Any = forward, update: Any = update) -> None:
            forward(torch.ones(2, 4)).backward()
            update()

        counters.append(_counted(recorded, model, step, is_warm=True))
    assert counters[0] == counters[1]


def _counters_of(recorded: Recorded | None, compile_it: Any, is_warm: bool) -> dict[str, dict[str, int]]:
    model = compile_it(stack())
    return _counted(recorded, model, lambda: model(torch.ones(2, 4)).sum().backward(), is_warm=is_warm)


def _counted(recorded: Recorded | None, model: Any, step: Any, *, is_warm: bool) -> dict[str, dict[str, int]]:
    """What dynamo counts over two steps before, two steps in a window and two steps after it."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    for _ in range(2 if is_warm else 0):
        step()
    if recorded is not None:
        recorded._ranges = ModuleRanges([model])
        recorded.__enter__()
    for _ in range(2):
        step()
    if recorded is not None:
        recorded.__exit__()
    for _ in range(2):
        step()
    kept = ("frames", "stats", "graph_break", "recompile_limit", "aot_autograd")
    return {key: dict(counters[key]) for key in kept}
