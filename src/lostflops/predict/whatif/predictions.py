"""Stored predictions: one file each in the run they were made from, so that a later run can score them."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from lostflops._version import __version__
from lostflops.core.errors import BrokenRun, UsageError
from lostflops.store.commit import PREDICTIONS, remove_drafts
from lostflops.store.scratch import locked
from lostflops.store.seals import UNSEALED, is_seal_broken, seal

if TYPE_CHECKING:
    from lostflops.predict.whatif.answer import WhatIfAnswer
    from lostflops.store.manifest import Manifest
    from lostflops.store.run import Run

_ID: Final = re.compile(r"p-[0-9a-f]{8}")


class Origin(msgspec.Struct, kw_only=True):
    """A run, identified by its path and its contents."""

    path: str
    data: str
    """Hash of the ingested files: equal for runs made from the same files."""
    ranks: int
    device: str | None = None
    backend: str | None = None
    recorded: str = ""


class Asked(msgspec.Struct):
    name: str
    value: str


class PredictionCheck(msgspec.Struct):
    measured_ns: int
    replayed_ns: int
    replay_error: float
    steps_from: str = "trace"
    """`timings` if `measured_ns` is the normal step from the timings of all steps, `trace` if it is the mean of the
    profiled steps."""


class Score(msgspec.Struct, kw_only=True):
    """A comparison of a prediction with a run that was made with the changes."""

    run: Origin
    date: str
    measured_ns: int
    steps: int
    predicted_ns: int
    error: float
    """predicted / measured - 1."""
    inside: bool
    in_advance: bool
    """Whether the run was recorded after the prediction was made."""
    gain: float
    sign_right: bool | None
    """None if neither a gain nor a loss was predicted."""


class StoredPrediction(msgspec.Struct, kw_only=True):
    id: str
    schema: str = "lostflops.prediction/2"
    date: str
    lostflops: str
    run: Origin
    changes: list[Asked]
    baseline: PredictionCheck
    predicted_ns: int
    interval: tuple[int, int]
    gain: float
    scores: list[Score] = []
    seal: str = UNSEALED
    """Checksum of the file; the last value."""

    @property
    def text(self) -> str:
        return ", ".join(f"{asked.name}={asked.value}" for asked in self.changes)


def make_prediction(run: Run, found: WhatIfAnswer) -> StoredPrediction:
    """Return the prediction to store. The same question about the same data has the same id, whenever it is asked."""
    start = found.baseline
    predicted, low, high = round(found.predicted), round(found.low), round(found.high)
    steps_from = "trace" if start.normal is None else "timings"
    check = PredictionCheck(round(start.measured), round(start.replayed), start.error, steps_from)
    asked = [Asked(one.change.name, one.value) for one in found.applied]
    origin = origin_of(run)
    content = msgspec.json.encode([origin.data, asked, check, predicted, low, high])
    return StoredPrediction(
        id=f"p-{hashlib.sha256(content).hexdigest()[:8]}",
        date=now(),
        lostflops=__version__,
        run=origin,
        changes=asked,
        baseline=check,
        predicted_ns=predicted,
        interval=(low, high),
        gain=found.gain,
    )


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def origin_of(run: Run) -> Origin:
    device, backend = run.rows("select max(device), max(backend) from ranks")[0]
    recorded = run.rows("select max(stop) from steps")[0][0]
    when = datetime.fromtimestamp(recorded / 1e9, UTC).isoformat(timespec="seconds") if recorded else ""
    return Origin(
        path=str(run.path),
        data=data_of(run.manifest),
        ranks=len(run.ranks),
        device=device,
        backend=backend,
        recorded=when,
    )


def data_of(manifest: Manifest) -> str:
    """Return a hash of the files that a run was made from, independent of when it was ingested."""
    sources = sorted((source.rank, source.format, source.hash) for source in manifest.sources)
    return hashlib.sha256(msgspec.json.encode(sources)).hexdigest()[:16]


def keep(prediction: StoredPrediction) -> None:
    """Store the prediction unless it is stored already: an earlier one keeps its date and its scores. Raise OSError if
    that fails."""
    path = _path(Path(prediction.run.path), prediction.id)
    if not path.exists():
        save(prediction, Path(prediction.run.path))
        with suppress(OSError):
            _remember(prediction)


def save(prediction: StoredPrediction, run: Path) -> None:
    """Write the prediction atomically: readers see the old file or the new one."""
    path = _path(run, prediction.id)
    # A run that somebody passed on may hold links to anything.
    if path.parent.is_symlink():
        raise OSError(errno.ELOOP, "refusing to write through a symbolic link", str(path.parent))
    path.parent.mkdir(exist_ok=True)
    unsealed = msgspec.structs.replace(prediction, seal=UNSEALED)
    with locked(path.parent) as is_alone:
        if is_alone:  # otherwise a draft may be one that somebody writes now
            remove_drafts(path.parent)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with new.open("xb") as file:
                file.write(seal(msgspec.json.format(msgspec.json.encode(unsealed), indent=1) + b"\n"))
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)


def load_predictions(run: Path) -> Iterator[StoredPrediction]:
    """Yield all predictions of a run, the oldest first."""
    found = [_load(path) for path in (run / PREDICTIONS).glob("p-*.json")]
    yield from sorted(found, key=lambda prediction: (prediction.date, prediction.id))


def find(prediction_id: str, places: list[Path], *, known: bool = True) -> tuple[StoredPrediction, Path]:
    """Return the prediction and the run that holds it: one of `places` or, if `known`, a run that was asked on this
    machine. A place may be a run or a folder of runs."""
    if not _ID.fullmatch(prediction_id):
        raise UsageError(f"{prediction_id!r} is not a prediction id such as p-7f3a2c91: see lostflops score --list RUN")
    folders = [*(_look_up_run_folders(prediction_id) if known else ()), *places]
    for folder in folders:
        inner = sorted(path.parent.parent for path in folder.glob(f"*/{PREDICTIONS}/{prediction_id}.json"))
        for run in (folder, *inner):
            if _path(run, prediction_id).is_file():
                return _load(_path(run, prediction_id)), run
    looked = ", ".join(dict.fromkeys(map(str, folders)))
    raise UsageError(f"no prediction {prediction_id} in {looked}: give the run it was made from with --from RUN")


def _path(run: Path, prediction_id: str) -> Path:
    return run / PREDICTIONS / f"{prediction_id}.json"


def _load(path: Path) -> StoredPrediction:
    try:
        data = path.read_bytes()
        found = msgspec.json.decode(data, type=StoredPrediction)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenRun(f"{path} is damaged ({error}). Remove it and run lostflops whatif again.") from None
    if is_seal_broken(data, found.seal):
        raise BrokenRun(
            f"{path} was changed after it was written: its checksum differs. Remove it and run lostflops whatif again."
        )
    found.seal = UNSEALED
    if found.id != path.stem:  # it names the file that a score is written to
        raise BrokenRun(
            f"{path} holds another prediction ({found.id[:40]!r}). Remove it and run lostflops whatif again."
        )
    return found


class _PredictionFile(msgspec.Struct):
    id: str
    run: str


def _index() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "lostflops" / "predictions.jsonl"


def _remember(prediction: StoredPrediction) -> None:
    """Append the path of the run to the user's list of predictions."""
    index = _index()
    index.parent.mkdir(parents=True, exist_ok=True)
    with index.open("a+b") as file:
        # A writer that was killed, or a full disk, may have left half a line.
        is_torn = file.seek(0, os.SEEK_END) > 0 and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
        file.write(b"\n" * is_torn + msgspec.json.encode(_PredictionFile(prediction.id, prediction.run.path)) + b"\n")


def _look_up_run_folders(prediction_id: str) -> list[Path]:
    """Return the runs in the user's list that hold the prediction, the newest first."""
    found = []
    with suppress(OSError):
        for line in _index().read_bytes().splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                place = msgspec.json.decode(line, type=_PredictionFile)
                if place.id == prediction_id:
                    found.append(Path(place.run))
    return found[::-1]
