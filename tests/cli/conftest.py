import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import lostflops.account.derive.derive
from lostflops.cli.main import main
from lostflops.core.errors import NotARun
from memory_run import MemoryRun


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Call = Callable[..., Outcome]


@pytest.fixture
def lostflops(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the command line in this process."""

    def call(*arguments: str | Path) -> Outcome:
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], MemoryRun]]:
    """Runs by path, in place of those on disk."""
    known: dict[str, Callable[[], MemoryRun]] = {}

    class Run:
        @staticmethod
        def open(path: str | Path) -> MemoryRun:
            if str(path) not in known:
                raise NotARun(f"{path} holds no run; make one with lostflops ingest")
            opened = known[str(path)]()
            opened.path, opened.address = Path(path), str(path)
            return opened

    module = ModuleType("lostflops.store.run")
    module.Run = Run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lostflops.store.run", module)
    return known
