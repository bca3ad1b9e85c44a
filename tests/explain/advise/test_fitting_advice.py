"""Advice fits the machine: no rule names tools of CUDA on a CPU, and every instruction reads as one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lostflops.explain.advise import rules
from lostflops.explain.advise.signs.machine import HostMachine
from lostflops.predict.whatif import changes

CUDA = re.compile(r"cuda|nvidia|nccl|cudnn|pin_memory|non_blocking|expandable|bf16_compress", re.IGNORECASE)
NEED_A_DEVICE = {"allocator", "copies", "fragmentation", "host_bound", "precision"}
"""Causes on lines and memory that only ranks with a device have."""
OTHERS = {"straggler", "throttling", "warmup"}
"""They look at the device of a rank themselves."""
OF_A_DEVICE = {"launch", "precision", "sync", "encode"}
"""What-ifs that do not apply to a CPU."""
FILES = sorted(Path(rules.__path__[0]).glob("*.py"))
ON_ANY_MACHINE = [path for path in FILES if path.stem not in NEED_A_DEVICE | OTHERS]


def texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """Strings that a rule may say, without those for machines with a device: keyword `gpu`, or `x if on_device`."""
    if isinstance(tree, ast.keyword) and tree.arg == "gpu":
        return
    if isinstance(tree, ast.IfExp) and "on_device" in ast.unparse(tree.test):
        yield from texts(tree.orelse)
        return
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        yield tree
    for child in ast.iter_child_nodes(tree):
        yield from texts(child)


@pytest.mark.parametrize("path", ON_ANY_MACHINE, ids=lambda p: p.stem)
def test_a_rule_names_tools_of_cuda_for_devices_only(path: Path) -> None:
    lines = [f"{path.name}:{text.lineno}: {text.value}" for text in texts(ast.parse(path.read_text()))]
    assert [line for line in lines if CUDA.search(line)] == []


@pytest.mark.parametrize("path", sorted(Path(changes.__path__[0]).glob("*.py")), ids=lambda p: p.stem)
def test_a_what_if_names_tools_of_cuda_for_devices_only(path: Path) -> None:
    if path.stem in OF_A_DEVICE:
        return
    lines = [f"{path.name}:{text.lineno}: {text.value}" for text in texts(ast.parse(path.read_text()))]
    assert [line for line in lines if CUDA.search(line) and not re.search("on NCCL|NCCL_IB_HCA", line)] == []


def test_a_text_is_picked_by_the_machine() -> None:
    cpu, gpu = HostMachine(is_cpu=True, backend="gloo"), HostMachine(is_cpu=False, backend="nccl")
    assert (cpu.pick(gpu="nvidia-smi", cpu="top"), gpu.pick(gpu="nvidia-smi", cpu="top")) == ("top", "nvidia-smi")
    assert (cpu.half_hook, gpu.half_hook) == ("fp16_compress_hook", "bf16_compress_hook")


def instructions() -> Iterator[tuple[str, str]]:
    for path in FILES:
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.keyword) and call.arg == "certain_if" and path.stem not in OTHERS:
                parts = [part.value for part in ast.walk(call.value) if isinstance(part, ast.Constant)]
                yield path.stem, next((part for part in parts if isinstance(part, str)), "")


VERBS = {"add", "call", "compare", "count", "double", "exchange", "leave", "log", "look", "make", "move", "print"}
VERBS |= {"find", "give", "halve", "record", "run", "skip", "stop", "time", "train"}


@pytest.mark.parametrize(("rule", "text"), list(instructions()))
def test_how_to_confirm_a_cause_begins_with_a_verb(rule: str, text: str) -> None:
    assert text.split(maxsplit=1)[0] in VERBS, f"{rule}: To confirm: {text}"
