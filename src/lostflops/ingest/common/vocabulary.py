"""The texts of the traces that one task reads, and the meaning of each name, computed once per name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from lostflops.core.limits import MOST_DETAILS, MOST_NAMES
from lostflops.ingest.common.columns import NULL32, Texts
from lostflops.ingest.common.comm_names import is_comm_host_event, is_comm_kernel

NO_STEP: Final = -1
_MODULE: Final = "lostflops.module: "
_STEP = re.compile(r"ProfilerStep#(\d{1,9})$")
_PYTHON_FRAME = re.compile(r".\(\d+\): ")
_LONGEST_PATH = 4_096

Item = TypeVar("Item", bound=np.generic)


class Vocabulary:
    """Texts shared by all ranks of a task, so that their rows can go to one file."""

    def __init__(self) -> None:
        self.names = Texts(MOST_NAMES)
        self.details = Texts(MOST_DETAILS)
        self.grids = Texts(MOST_DETAILS)
        self.sources = Texts(MOST_DETAILS)
        self.step_of_name = _PerText(self.names, _step, np.dtype(np.int64))
        self.is_comm_kernel = _PerText(self.names, is_comm_kernel, np.dtype(np.bool_))
        self.is_comm_host_event = _PerText(self.names, is_comm_host_event, np.dtype(np.bool_))
        self.source_of_name = _PerText(self.names, self._source, np.dtype(np.uint32))
        self.modules = Texts(MOST_NAMES)
        self.module_of_name = _PerText(self.names, self._module, np.dtype(np.uint32))
        self.triples = _PerText(self.grids, _triple, np.dtype(np.int32))
        """Numbers of a grid or block such as `[8, 1, 1]`."""

    def count_refused(self) -> Counter[str]:
        """Count how often a text was left out because there were too many different texts, by observation."""
        return Counter(
            names_dropped=self.names.refused,
            shapes_dropped=self.details.refused,
            grids_dropped=self.grids.refused,
            sources_dropped=self.sources.refused,
        )

    def _module(self, name: str) -> int:
        """Return the code of the module that the collector names in an annotation; 0 for other names."""
        return self.modules[name.removeprefix(_MODULE)] if name.startswith(_MODULE) else 0

    def _source(self, name: str) -> int:
        """Return the code of the source line that the profiler names a Python call by; 0 for other names."""
        return self.sources[name] if _PYTHON_FRAME.search(name[:_LONGEST_PATH]) else 0


class _PerText(Generic[Item]):
    """A function of a text as an array over its codes, extended as new texts come in."""

    def __init__(self, texts: Texts, function: Callable[[str], Any], dtype: np.dtype[Item]) -> None:
        self._texts, self._function, self._dtype = texts, function, dtype
        self._known: npt.NDArray[Item] = np.array([function("")], dtype)

    def __getitem__(self, codes: npt.NDArray[np.uint32]) -> npt.NDArray[Item]:
        texts = self._texts.texts()
        known = len(self._known)
        if len(texts) > known:
            fresh = np.array([self._function(text or "") for text in texts[known:]], self._dtype)
            self._known = np.concatenate((self._known, fresh))
        found: npt.NDArray[Item] = self._known[codes]
        return found


def _step(name: str) -> int:
    match = _STEP.match(name)
    return int(match[1]) if match else NO_STEP


def _triple(text: str) -> tuple[int, int, int]:
    nothing = (NULL32, NULL32, NULL32)
    if not text or len(text) > 64:
        return nothing
    try:
        x, y, z = msgspec.json.decode(text, type=tuple[int, int, int])
    except msgspec.DecodeError:
        return nothing
    return (x, y, z) if max(abs(x), abs(y), abs(z)) < 1 << 31 else nothing
