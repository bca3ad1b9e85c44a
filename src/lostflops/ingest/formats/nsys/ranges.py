"""The meaning of an NVTX range by its name: an op of PyTorch, an annotation, a call of a library, a step.

Under `torch.autograd.profiler.emit_nvtx` PyTorch makes a range of every op and every `record_function`, and appends
numbers to its name. These are removed, because a name must not differ each time.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final, NamedTuple

OP, ANNOTATION, OTHER = "op", "annotation", "other"

_EMITTED: Final = re.compile(r", (?:stashed )?(?:seq|op_id|sizes|input_op_ids) = ")
_OP: Final = re.compile(r"aten::|autograd::|torch::autograd::|c10d::|_c10d_functional(?:_autograd)?::")
_WRITTEN: Final = re.compile(r"FSDP::|nccl:|gloo:|DistributedDataParallel\.|\S*[\s#(]")
"""Names that programs pass to `record_function`; names of ops are one word."""
_NCCL_CALL: Final = re.compile(r"(?:p?nccl)[A-Z]\w*$")
_STEP: Final = re.compile(
    r"(?P<family>(?:(?:train(?:ing)?|global)[ _-]?)?(?:ProfilerStep|step|iter(?:ation)?)[ _#:=-]{0,2})"
    r"(?P<step>\d{1,9})",
    re.IGNORECASE,
)
_PROFILER: Final = "ProfilerStep#"
LIBRARIES: Final = frozenset(
    {"NCCL", "MPI", "UCX", "NVSHMEM", "CCCL", "cuBLAS", "cuDNN", "cuSPARSE", "cuSOLVER", "cuFFT"}
)
"""Domains in which libraries name their own calls."""


class Meaning(NamedTuple):
    kind: str
    name: str


def meaning(text: str, is_library: bool = False) -> Meaning:
    """Return the kind and name of a range.

    >>> meaning("aten::mm, seq = 12, op_id = 990346"), meaning("FSDP::pre_forward (blocks.3), op_id = 7")
    (Meaning(kind='op', name='aten::mm'), Meaning(kind='annotation', name='FSDP::pre_forward (blocks.3)'))
    >>> meaning("load batch"), meaning("ncclGroupEnd")
    (Meaning(kind='annotation', name='load batch'), Meaning(kind='other', name='ncclGroupEnd'))
    """
    emitted = _EMITTED.search(text)
    name = text[: emitted.start()] if emitted else text
    if is_library or _NCCL_CALL.match(name):
        return Meaning(OTHER, name)
    if _OP.match(name) or (emitted and not _WRITTEN.match(name) and counted_step(name) is None):
        return Meaning(OP, name)
    return Meaning(ANNOTATION, name)


def counted_step(name: str) -> tuple[str, int] | None:
    """Return the words before the number, and the number, if a name counts steps and says nothing else.

    >>> counted_step("step 12"), counted_step("iteration_3"), counted_step("Optimizer.step#AdamW.step")
    (('step ', 12), ('iteration_', 3), None)
    """
    found = _STEP.fullmatch(name)
    return (found["family"], int(found["step"])) if found else None


class Meanings(dict[tuple[Any, Any, Any], int]):
    """Index of the meaning of each range, by its text, number of the text, and domain, as rows have them.

    >>> meanings = Meanings({3: "step 12"}, libraries=set())
    >>> meanings[None, 3, 0], meanings[b"step 12", None, 0], meanings.found
    (0, 1, [Meaning(kind='annotation', name='step 12'), Meaning(kind='annotation', name='step 12')])
    """

    def __init__(self, texts: Mapping[int, str], libraries: Container[object]) -> None:
        super().__init__()
        self._texts, self._libraries = texts, libraries
        self.found: list[Meaning] = []
        """The meanings."""
        self.steps: list[tuple[str, int] | None] = []
        """Result of `counted_step` for each meaning; None if it is not an annotation."""

    def __missing__(self, key: tuple[Any, Any, Any]) -> int:
        said, number, domain = key
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else self._texts.get(number, "")
        found = meaning(text, domain in self._libraries)
        self.found.append(found)
        self.steps.append(counted_step(found.name) if found.kind == ANNOTATION else None)
        self[key] = len(self.found) - 1
        return len(self.found) - 1

    def forget(self) -> None:
        """Forget everything; call it between batches, so that memory does not grow with texts that never repeat."""
        self.clear()
        self.found.clear()
        self.steps.clear()


def step_families(ranges: Iterable[tuple[int, str, int]]) -> dict[int, tuple[int, str]]:
    """Return thread and words of the ranges that count the steps of each process.

    `ranges` are thread, words and duration. The profiler's own count is preferred; otherwise, of several that count,
    the one with most time: microbatches are counted inside of steps.
    """
    took: defaultdict[int, Counter[tuple[int, str]]] = defaultdict(Counter)
    for thread, family, dur in ranges:
        took[process_of(thread)][thread, family] += dur
    return {
        process: max(families, key=lambda key: (key[1] == _PROFILER, families[key], -key[0]))
        for process, families in took.items()
    }


def process_of(thread: int) -> int:
    """Return the `globalPid` of a `globalTid`: its lowest 24 bits are the thread."""
    return thread >> 24 << 24
