"""Record one run of a command for `lostflops fit`, end it after its steps, and read it."""

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lostflops.cli.output import free, tell
from lostflops.collect.capture import FOLDER, SUFFIX, WINDOWS

if TYPE_CHECKING:
    from lostflops.predict.fit.batches import MeasuredBatch
    from lostflops.store.run import Run

_OPTIONS = frozenset({"memory", "modules"})
_OVERHEAD = 0.05
_PATIENCE = 15.0
"""An interrupted command has this many seconds to end before it is terminated."""
_COMMAND = "command.json"
_DONE = frozenset({"exported", "skipped", "failed"})


@dataclass(frozen=True, slots=True)
class FitJob:
    words: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    steps: int | None


class _Ending:
    """Watcher that ends a command when all its ranks have done their steps and their window is written."""

    def __init__(self, capture: Path, steps: int) -> None:
        self._capture, self._steps = capture, steps
        self.asked: float | None = None
        self._is_terminated = False

    def look(self) -> None:
        from lostflops.live.standing import standings

        if self.asked is not None:
            if not self._is_terminated and time.monotonic() - self.asked > _PATIENCE:
                self._is_terminated = True
                self._send(signal.SIGTERM)
            return
        found = standings(self._capture).values()
        if found and all(one.step + 1 >= self._steps and _is_written(one.windows) for one in found):
            self.asked = time.monotonic()
            tell(f"{self._steps} steps are done: interrupting the command (it may print an error)")
            self._send(signal.SIGINT)

    def _send(self, number: signal.Signals) -> None:
        """Send a signal to the thread that passes signals on to the command."""
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, number)


def _is_written(windows: Mapping[int, tuple[str, str | None]]) -> bool:
    return 0 not in windows or windows[0][0] in _DONE


def measure_batch(size: int, job: FitJob) -> "MeasuredBatch | str":
    """Return what was measured, or what went wrong, in words that follow the size."""
    from lostflops.cli.ingesting import ingest_capture
    from lostflops.cli.late import LatePlaces, conclude
    from lostflops.store.run import Run

    capture = job.folder / FOLDER
    (capture / WINDOWS).mkdir(parents=True)
    began = time.monotonic()
    wrong = _run(job, capture)
    if not any(capture.rglob(f"*{SUFFIX}")):
        shutil.rmtree(job.folder)
        return wrong or "recorded nothing: the command ran no training step (lostflops doctor shows why)"
    conclude(LatePlaces(capture, capture, job.folder))
    ingest_capture(capture, job.folder)
    if wrong:
        # What it recorded may show why; it is not a measurement.
        job.folder.rename(free(job.folder.with_name(f"{job.folder.name}-failed")))
        return wrong
    with Run.open(job.folder) as run:
        found = read_batch(size, run)
    tell(f"... measured {found.steps} steps after warm-up, in {time.monotonic() - began:.0f} s")
    return found


def read_kept_batch(size: int, folder: Path) -> "MeasuredBatch | None":
    """Read a kept run, or return None if there is no complete one. An interrupted run is moved aside."""
    from lostflops.store.manifest import FILE_NAME
    from lostflops.store.run import Run

    if not folder.exists():
        return None
    if not (folder / FILE_NAME).exists():
        aside = folder.rename(free(folder.with_name(f"{folder.name}-failed")))
        tell(f"{folder} is incomplete: moved to {aside.name}, measuring again")
        return None
    with Run.open(folder) as run:
        return read_batch(size, run)


def remember_command(keep: Path, words: Sequence[str]) -> None:
    """Store the command of kept runs; raise UsageError if they are measurements of another command."""
    from lostflops.core.errors import UsageError

    told, file = json.dumps(list(words)), keep / _COMMAND
    if not file.exists():
        if keep.exists() and any(keep.iterdir()):
            raise UsageError(f"{keep} has other files in it: choose a new folder for --keep")
        keep.mkdir(parents=True, exist_ok=True)
        file.write_text(told, encoding="utf-8")
    elif file.read_text(encoding="utf-8") != told:
        raise UsageError(f"{keep} has runs of another command: choose another folder for --keep")


def _run(job: FitJob, capture: Path) -> str:
    from lostflops.collect.command import recorded_environment, run_command
    from lostflops.collect.settings import Settings
    from lostflops.core.errors import UsageError

    settings = Settings(folder=capture.resolve(), options=_OPTIONS, overhead=_OVERHEAD)
    environment = recorded_environment(job.environment, settings)
    ending = _Ending(capture, job.steps) if job.steps else None
    try:
        status = run_command(job.words, environment, ending.look if ending else lambda: None, output=2)
    except FileNotFoundError:
        raise UsageError(f"command not found: {job.words[0]!r}. Give the command to run after --.") from None
    except PermissionError:
        raise UsageError(f"{job.words[0]} cannot be executed: permission denied.") from None
    code = os.waitstatus_to_exitcode(status)
    if code == 0 or (ending is not None and ending.asked is not None):
        return ""
    if code in (-signal.SIGINT, 128 + signal.SIGINT):
        raise KeyboardInterrupt
    return f"failed with exit code {code}"


def read_batch(size: int, run: "Run") -> "MeasuredBatch":
    """Return the step time and memory of a run at this size."""
    from lostflops.account.memory.read import memories
    from lostflops.account.pace.blocks import typical
    from lostflops.explain.compare.series import read_timed_steps
    from lostflops.predict.fit.batches import MeasuredBatch
    from lostflops.predict.fit.step_times import FittedStepTime

    steps = read_timed_steps(run)
    time_of_step = None
    if steps.times.size:
        location = typical(steps.times)
        time_of_step = FittedStepTime(size, location.value, location.error, location.freedom)
    (microbatches, process) = run.sql("select median(microbatches), max(peak_memory) from timings").fetchall()[0]
    return MeasuredBatch(
        batch=size,
        memories=tuple(memories(run)),
        time=time_of_step,
        steps=int(steps.times.size),
        samples=steps.samples,
        microbatches=None if microbatches is None else int(microbatches),
        process=int(process or 0),
    )
