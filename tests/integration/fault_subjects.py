"""What is killed or given I/O errors at each of its file operations, and what must hold afterwards."""

from __future__ import annotations

import hashlib
import mmap
import os
import random
import shutil
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import msgspec

import lostflops
from lostflops.account.derive.derive import derive
from lostflops.collect import window_plan
from lostflops.collect import writer as writing
from lostflops.collect.capture import WindowRequest, rank_file, read_frames, request_file
from lostflops.explain.advise.diagnosis import diagnosis_code
from lostflops.ingest import ingest
from lostflops.live import prometheus
from lostflops.live.metrics import Metric
from lostflops.predict.costs.calibration import Calibration, write_calibration
from lostflops.predict.whatif import predictions
from lostflops.predict.whatif.predictions import Asked, Origin, PredictionCheck, StoredPrediction
from lostflops.store import derived
from lostflops.store import manifest as manifests
from lostflops.store.commit import RunWriter
from lostflops.store.derived import account_code, add_tables, data_digest
from lostflops.store.mirror import newest
from lostflops.store.objects import Objects, objects_of
from lostflops.store.places import Address, remote
from lostflops.store.run import Run
from lostflops.store.spread.engines import ChosenEngine
from lostflops.store.tables import DIAGNOSIS
from lostflops.store.verify import verify
from tests.integration.faults import Ended, Forks
from tests.integration.kill_harness import State, leftovers, named_files, state, write_trace
from tests.store.conftest import HandMadeRun

ONE = ChosenEngine(asked=1)
_ = account_code(), diagnosis_code()  # a digest of all code, computed once for all children


class Subject:
    """Work below `folder`, whose file operations are hit one by one."""

    name: ClassVar[str]
    share: ClassVar[float]
    """Part of all kills that it gets, in relation to the others."""
    error_share: ClassVar[float]
    """The same, of all I/O errors."""

    def __init__(self, forks: Forks, seed: int) -> None:
        self.forks, self.seed = forks, seed
        self.folder = forks.folder
        self.chance = random.Random(f"{self.name} {seed}")

    def reset(self) -> None:
        """Prepare the folder; nothing is counted."""
        raise NotImplementedError

    def work(self) -> object:
        """Do what is hit, in a child."""
        raise NotImplementedError

    def judge(self, ended: Ended) -> str:
        """Return what is wrong after the child ended; empty if nothing is."""
        raise NotImplementedError

    def count(self) -> str:
        self.reset()
        return self.forks.count(self.work)


def clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for place in ("tmp", "cache", "state"):
        (folder / place).mkdir(parents=True)


def address_of(run: str) -> Address:
    found = remote(run)
    assert found is not None
    return found


def words_of(ended: Ended) -> str:
    """Return what is wrong with how an error was reported; empty if nothing is."""
    if "Traceback" in ended.stderr:
        return f"a traceback on stderr: {ended.stderr[-300:]}"
    if ended.error and not ended.is_ours:
        return f"an error that is not ours: {ended.error}"
    return ""


class RunSubject(Subject):
    """Work that leads a run from `old` to `new`; the next `work` leads there too, and leaves nothing else."""

    must_report = True
    """Whether work that returns has led to the new run: what is only kept for later may be kept later."""

    def __init__(self, forks: Forks, seed: int) -> None:
        super().__init__(forks, seed)
        self._states: dict[bytes, State] = {}
        self._judged: set[str] = set()
        """Trees after which the next one was seen to succeed."""
        self.run = self.folder / "run"
        self.template = self.folder.with_name(f"template-{self.name.replace(' ', '-')}-{seed}")
        clear(self.folder)
        self.forks.run(self.prepare)
        shutil.rmtree(self.template, ignore_errors=True)
        shutil.copytree(self.folder, self.template)
        self.old = self._state()
        self.reset()
        self.forks.warm(self.work)
        self.new = self._state()
        assert self.old != self.new

    def prepare(self) -> None:
        """Make the sources and the run before, in a child."""
        raise NotImplementedError

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder)

    def _state(self) -> State:
        """Return the state of the run, from its rows if files with these checksums were not read before."""
        if not (self.run / manifests.FILE_NAME).exists():
            return None
        found = manifests.load(self.run)
        if not verify(self.run).to_json()["is_intact"]:
            raise AssertionError("lostflops verify finds damaged files")
        checksums = ((table, one.ranks, one.crc32, one.bytes) for table, files in found.files.items() for one in files)
        key = msgspec.json.encode(sorted(checksums))
        if key not in self._states:
            self._states[key] = self.forks.run(lambda: state(self.run))
        return self._states[key]

    def judge(self, ended: Ended) -> str:
        if not ended.signal and (wrong := words_of(ended)):
            return wrong
        found = self._state()
        if found not in (self.old, self.new):
            return f"neither old nor new: {found}"
        if ended.is_ok and self.must_report and found != self.new:
            return "it reported success, but the run is the old one"
        tree = self._tree()
        if tree in self._judged:
            return ""
        before = named_files(self.run)
        again = self.forks.attempt(self.work_again)
        if not again.is_ok:
            return f"the next one failed: {again.error or again.signal}"
        if self._state() != self.new:
            return "the next one did not lead to the new run"
        if not (wrong := self._left_over(before)):
            self._judged.add(tree)
        return wrong

    def _tree(self) -> str:
        """Return a digest of all files: what comes next depends on them alone. Locks hold the number of a process."""
        found = hashlib.sha256()
        for path in sorted(self.folder.rglob("*")):
            content = path.read_bytes() if path.is_file() and path.name != ".lock" else b""
            found.update(f"{path.relative_to(self.folder)} {len(content)}\n".encode() + content)
        return found.hexdigest()

    def work_again(self) -> object:
        """Do what a user would do next, in a child."""
        return self.work()

    def _left_over(self, before: set[str]) -> str:
        left = leftovers(self.run, before)
        left += [str(path) for path in (self.folder / "tmp").rglob("*")]
        left += [str(path) for path in (self.folder / "cache").rglob("*") if path.is_file() and len(path.name) != 64]
        return f"the next one left {left[:3]}" if left else ""


class NewRun(RunSubject):
    name = "new run"
    share = 0.25
    error_share = 1.6

    def prepare(self) -> None:
        for rank in range(self.chance.choice((1, 2, 2, 3)) if self.seed else 2):
            write_trace(self.folder / "traces" / f"r{rank}.json", rank, self.chance.randrange(6, 60))

    def work(self) -> object:
        return ingest([self.folder / "traces"], self.run, workers=1, replace=True)


class ExistingRun(NewRun):
    """Rank 0 stays, rank 1 changes, rank 2 comes from another file, rank 3 is new."""

    name = "existing run"
    share = 0.3
    error_share = 1.8

    def prepare(self) -> None:
        traces, before = self.folder / "traces", self.folder / "before"
        kept = [write_trace(traces / f"r{rank}.json", rank, self.chance.randrange(6, 60)) for rank in range(2)]
        ingest([*kept, write_trace(before / "r2.json", 2, 9)], self.run, workers=1)
        for rank in (1, 2, 3) if not self.seed % 2 else (1, 3):
            write_trace(traces / f"r{rank}.json", rank, self.chance.randrange(60, 99), "aten::add")


class Accounts(RunSubject):
    """Opening a run computes the ledgers that it lacks, or that older code made."""

    name = "ledgers on open"
    share = 0.2
    error_share = 1.6
    must_report = False

    def prepare(self) -> None:
        traces = [
            write_trace(self.folder / "traces" / f"r{rank}.json", rank, self.chance.randrange(6, 60))
            for rank in range(1 + self.seed % 2)
        ]
        ingest(traces, self.run, workers=1)
        if self.seed % 2:
            current, derived.code_digest = derived.code_digest, lambda *_: "0" * 16  # type: ignore[assignment]
            derive(self.run, ONE)
            derived.code_digest = current

    def work(self) -> object:
        return lostflops.open(self.run).close()

    def work_again(self) -> object:
        """Other readers may still use what a reader's commit replaced: only an ingest removes it."""
        self.work()
        return ingest([self.folder / "traces"], self.run, workers=1)


class Tables(Accounts):
    """A reading command adds a diagnosis."""

    name = "diagnosis on read"
    share = 0.1
    error_share = 0.6

    def prepare(self) -> None:
        super().prepare()
        derive(self.run, ONE)

    def work(self) -> object:
        document = f'"{"x" * (10 + self.seed)}"'
        data = data_digest(manifests.load(self.run))
        return add_tables(self.run, data, {DIAGNOSIS: {"code": [diagnosis_code()], "document": [document]}})


class Remote(Subject):
    """A commit to an object store; each request counts as two operations, one before it and one after its answer."""

    name = "object store"
    share = 0.07
    error_share = 0.3

    def __init__(self, forks: Forks, seed: int) -> None:
        super().__init__(forks, seed)
        clear(self.folder)
        self._ranks = list(range(1 + seed % 3))
        self.run = self.forks.run(self._make_bucket)
        self._is_old = False
        self.forks.warm(lambda: self._put("older"))

    def _make_bucket(self) -> str:
        from tests.made_store import bucket_of

        return bucket_of(os.environ["AWS_ENDPOINT_URL"], f"faults-{self.seed}-{os.getpid()}") / "run"

    def _put(self, name: str) -> None:
        HandMadeRun(self.run).put(self._ranks, name)

    def _names(self) -> set[tuple[int, str]]:
        with Run.open(self.run) as opened:
            return set(opened.sql("select rank, name from lanes where lane = 0").fetchall())

    def reset(self) -> None:
        if not self._is_old:
            self.forks.run(lambda: self._put("old"))
        self._is_old = False

    def work(self) -> object:
        for name in ("endpoint", "below", "names", "read", "fetch", "send", "write", "create", "remove"):
            setattr(Objects, name, self._counted(getattr(Objects, name)))
        return self._put("new")

    def _counted(self, do: Any) -> Any:
        if isinstance(do, property):
            return property(self._counted(do.fget))

        def counted(*given: Any) -> Any:
            self._count()
            answer = do(*given)
            self._count()
            return answer

        return counted

    def _count(self) -> None:
        with suppress(FileExistsError):
            (self.folder / "request").mkdir()

    def judge(self, ended: Ended) -> str:
        if "Traceback" in ended.stderr:
            return f"a traceback on stderr: {ended.stderr[-300:]}"
        wrong = self.forks.attempt(lambda: self._judge(ended.is_ok))
        self._is_old = wrong.is_ok and not wrong.value
        return str(wrong.value or wrong.error or "")

    def _judge(self, is_ok: bool) -> str:
        old, new = ({(rank, name) for rank in self._ranks} for name in ("old", "new"))
        found = self._names()
        if found != new and (found != old or is_ok):
            return f"neither old nor new, or a false success: {found}"
        if not verify(self.run).to_json()["is_intact"]:
            return "lostflops verify finds damaged files"
        _, before = newest(address_of(self.run), objects_of(address_of(self.run)))
        self._put("old")
        if self._names() != old:
            return "the next commit did not lead to its run"
        _, after = newest(address_of(self.run), objects_of(address_of(self.run)))
        named = {file.path for one in (before, after) for files in one.files.values() for file in files}
        address = address_of(self.run)
        held = {one.address.url.removeprefix(f"{self.run}/") for one in objects_of(address).below(address / "data")}
        if held != named:
            return f"the next commit left {sorted(held - named)[:3]}"
        left = [str(path) for path in (self.folder / "tmp").rglob("*")]
        return f"the next commit left {left}" if left else ""


class Manifests(Subject):
    """A manifest is replaced: it is the old or the new one, with its seal."""

    name = "manifest"
    share = 1.9
    error_share = 0.6

    def __init__(self, forks: Forks, seed: int) -> None:
        super().__init__(forks, seed)
        self._numbers = self.chance.randrange(1, 999), self.chance.randrange(1000, 9999)

    def _made(self, number: int) -> manifests.Manifest:
        files = [
            manifests.DataFile(path=f"data/{number:06d}/lanes/{one}.parquet", format="kineto", ranks=[one])
            for one in range(1 + self.seed % 50)
        ]
        return manifests.Manifest(generation=number, files={"lanes": files})

    def reset(self) -> None:
        clear(self.folder)
        (self.folder / "run").mkdir()
        manifests.save(self.folder / "run", self._made(self._numbers[0]))

    def work(self) -> object:
        return manifests.save(self.folder / "run", self._made(self._numbers[1]))

    def judge(self, ended: Ended) -> str:
        if ended.error and not ended.error.startswith("OSError"):
            return ended.error
        old, new = map(self._made, self._numbers)
        found = manifests.load(self.folder / "run")
        if found not in (old, new) or (ended.is_ok and found != new):
            return f"generation {found.generation} after {ended}"
        self.work()
        left = {path.name for path in (self.folder / "run").iterdir()} - {manifests.FILE_NAME}
        return f"left {left}" if left or manifests.load(self.folder / "run") != new else ""


class Predictions(Subject):
    """A prediction is kept, then scored: it is absent, unscored or scored, and the next command finds it."""

    name = "predictions"
    share = 2.2
    error_share = 1.2

    def __init__(self, forks: Forks, seed: int) -> None:
        super().__init__(forks, seed)
        self.run = self.folder / "run"
        self._ids = [f"p-{self.chance.randrange(16**8):08x}" for _ in range(3)]

    def _made(self, number: int) -> StoredPrediction:
        return StoredPrediction(
            id=self._ids[number],
            date="2026-01-01",
            lostflops="1",
            run=Origin(path=str(self.run), data="x" * self.seed, ranks=1),
            changes=[Asked("a", "b" * (1 + self.seed % 7))],
            baseline=PredictionCheck(1, 1, 0.0),
            predicted_ns=number,
            interval=(0, 2),
            gain=0.1,
        )

    def reset(self) -> None:
        clear(self.folder)
        self.run.mkdir()
        predictions.keep(self._made(0))

    def work(self) -> object:
        predictions.keep(self._made(1))
        scored = msgspec.structs.replace(self._made(0), predicted_ns=7)
        predictions.save(scored, self.run)
        return None

    def judge(self, ended: Ended) -> str:
        if ended.error and not ended.error.startswith("OSError"):
            return ended.error
        found = {one.id: one.predicted_ns for one in predictions.load_predictions(self.run)}
        if found.pop(self._ids[0], None) not in (0, 7) or found not in ({}, {self._ids[1]: 1}):
            return f"predictions are {found}"
        if ended.is_ok and not found:
            return "it reported success, but the prediction is not there"
        predictions.keep(self._made(2))
        for number in (0, 2):
            predictions.find(self._ids[number], [])
        with RunWriter(self.run):
            pass
        left = [path.name for path in (self.run / "predictions").iterdir() if path.name.startswith(".")]
        return f"left {left}" if left else ""


class SmallFiles(Subject):
    """Files that are replaced at once: a request of `snap`, metrics of `watch`, a calibration."""

    name = "small files"
    share = 1.7
    error_share = 0.8

    def __init__(self, forks: Forks, seed: int) -> None:
        super().__init__(forks, seed)
        self._files = (
            request_file(self.folder / "capture", 1),
            self.folder / "metrics.prom",
            self.folder / "cluster.json",
        )
        self._metric = Metric("lostflops_x", "X.", "s")

    def _write(self, number: int) -> None:
        request = WindowRequest(1, number, 1 + self.seed)
        window_plan.publish(self._files[0], request)
        prometheus.write(self._files[1], {self._metric: [((("rank", str(number)),), self.seed)]})
        write_calibration(Calibration(date=f"2026-01-0{number}", notes=("x" * self.seed,)), self._files[2])

    def reset(self) -> None:
        clear(self.folder)
        self._write(1)
        self._old = [path.read_bytes() for path in self._files]
        self._write(2)
        self._new = [path.read_bytes() for path in self._files]
        self._write(1)

    def work(self) -> object:
        return self._write(2)

    def judge(self, ended: Ended) -> str:
        if ended.error and not ended.error.startswith("OSError"):
            return ended.error
        for path, old, new in zip(self._files, self._old, self._new, strict=True):
            found = path.read_bytes()
            if found != new and (found != old or ended.is_ok):
                return f"{path.name} is {found[:60]!r}"
        if not ended.signal:
            left = [path.name for path in self.folder.rglob(".*")]
            return f"an error left {left}" if left else ""
        return ""


class Collector(Subject):
    """A writer of the collector: no acknowledged record is lost, and each lost one is counted."""

    name = "collector"
    share = 3.28
    error_share = 1.5
    rounds = 6
    records = 25

    def __init__(self, forks: Forks, seed: int) -> None:
        super().__init__(forks, seed)
        self._shared = mmap.mmap(-1, 16)
        self.place = self.folder / "capture"

    def record(self, number: int) -> dict[str, Any]:
        return {"kind": "note", "number": number, "filler": "x" * (number * (7919 + self.seed) % 3000)}

    def reset(self) -> None:
        clear(self.folder)
        self._shared[:] = bytes(16)
        before = writing.Writer(self.place, 0, "before", lambda: None)
        before._file = writing._open(self.place, 0)
        before._write_frame([self.record(0)])
        os.close(before._file)

    def work(self) -> object:
        writing.PAUSE = 0.0002  # type: ignore[misc]
        writer = writing.Writer(self.place, 0, "s", lambda: None)
        writer.start()
        number = 0
        for _ in range(self.rounds):
            for _ in range(self.records):
                writer.put(self.record(number))
                number += 1
            writer.hurry()
            self._wait_for(writer, number)
        writer.close()
        self._tell(writer)
        return None

    def _wait_for(self, writer: writing.Writer, number: int) -> None:
        for _ in range(20_000):
            self._tell(writer)
            if writer.is_dead or writer.acknowledged_records + writer.dropped >= number:
                return
            writer._thread.join(0.0002)
        raise AssertionError("the writer does not write")

    def _tell(self, writer: writing.Writer) -> None:
        self._shared[:] = struct.pack("<qq", writer.acknowledged_records, writer.dropped + writer.is_dead)

    def judge(self, ended: Ended) -> str:
        if not ended.signal and (ended.error or ended.stderr):
            return f"the training saw {ended.error}{ended.stderr}"
        acknowledged, lost = struct.unpack("<qq", self._shared[:])
        frames, damaged = read_frames(rank_file(self.place, 0))
        found = [record for frame in frames if frame.session == "s" for record in frame.records]
        if [record for frame in frames if frame.session == "before" for record in frame.records] != [self.record(0)]:
            return "a record of the session before is lost"
        if len(found) < acknowledged:
            return f"{acknowledged - len(found)} of {acknowledged} acknowledged records are lost"
        if any(record != self.record(record["number"]) for record in found):
            return "a record was never put"
        numbers = [record["number"] for record in found]
        if numbers != sorted(set(numbers)):
            return "records are repeated, or not in order"
        if damaged > 1:
            return f"{damaged} torn stretches"
        if not ended.signal and len(found) < self.rounds * self.records and not lost:
            return "records are lost and not counted"
        return self._judge_next()

    def _judge_next(self) -> str:
        """The next attempt of the job is read, whatever the one before left."""
        writer = writing.Writer(self.place, 0, "next", lambda: None)
        writer._file = writing._open(self.place, 0)
        writer._write_frame([self.record(1)])
        os.close(writer._file)
        frames, _ = read_frames(rank_file(self.place, 0))
        is_read = frames[-1].session == "next" and frames[-1].records == [self.record(1)]
        return "" if is_read else "the next session cannot be read"


SUBJECTS: tuple[type[Subject], ...] = (
    Manifests,
    Predictions,
    SmallFiles,
    Collector,
    NewRun,
    ExistingRun,
    Tables,
    Accounts,
    Remote,
)
