"""Ask from Python what the command line answers: `import lostflops as lf; run = lf.open("run"); run.report()`.

Each method has the name of a verb and returns its answer as a `Result`: `verdict` and `notes` in words, an attribute
for each part (`report.ledger`, `report.findings`), `to_json()` as `--json` prints it, `to_pandas()`, and HTML in a
notebook. The verbs call these methods, so both give the same answer.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lostflops.core.errors import LostflopsError, RunError, UsageError

if TYPE_CHECKING:
    from datetime import date
    from types import TracebackType

    import duckdb

    from lostflops.account.ledger.mfu import Claims
    from lostflops.account.ledger.windows import WindowKind
    from lostflops.core.results import Pairs, Result
    from lostflops.fleet.regressions import JobStatus
    from lostflops.fleet.summary import RunSummary
    from lostflops.ingest.rounds import IngestProgress
    from lostflops.predict.costs.times import CommTimes
    from lostflops.predict.costs.topology import NetworkTopology
    from lostflops.predict.scaling.own_times import OwnTimes
    from lostflops.store.run import Run

Progress = Callable[[int, int], None]
"""Called with how many parts are done, of how many."""
Numbers = Sequence[int]
Place = str | Path
Runs = Place | Sequence[Place]


class TrainingRun:
    """A recorded run, open for questions. `with lf.open("run") as run:` closes it at the end."""

    def __init__(self, run: Run) -> None:
        self.stored = run
        """Its tables."""

    @property
    def folder(self) -> Path:
        return self.stored.path

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Return the rows of a SELECT: `.fetchall()` is a list of tuples, `.df()` a table of pandas, if installed."""
        return self.stored.sql(query)

    def info(self) -> Result:
        """Return what the run contains, and its size on disk."""
        from lostflops.core.results import Pair, Pairs
        from lostflops.explain.analyze.contents import contents
        from lostflops.store.places import remote

        held, run = contents(self.stored), self.stored
        if remote(run.address):
            sizes = [file.bytes for files in run.manifest.files.values() for file in files]
        else:
            sizes = [file.stat().st_size for file in run.path.rglob("*") if file.is_file()]
        size = Pair("bytes", sum(sizes), "bytes", "Size"), Pair("files", len(sizes), "count", "Files")
        return dataclasses.replace(held, blocks=(*held.blocks, Pairs("disk", "On disk", size)))

    def quality(self) -> Result:
        """Return how complete the data of each rank is."""
        from lostflops.explain.analyze.quality import quality

        return quality(self.stored)

    def report(
        self,
        *,
        window: str | None = None,
        rank: Numbers = (),
        step: Numbers = (),
        by: str = "",
        job: bool = False,
        peak_tflops: float | None = None,
        model_flops: float | None = None,
        tokens_per_step: float | None = None,
        samples_per_step: float | None = None,
        findings: bool = True,
        progress: Progress | None = None,
    ) -> Result:
        """Return where the time went.

        `window` is "steps" or "trace"; `by` is phase, job-phase, annotation, module, layer or rank. Findings are added
        only for the whole run: some ranks or steps alone do not show causes. `job` shows the whole job, from the start
        of its command to its end, instead of its profiled steps.
        """
        from lostflops.explain.advise.summary import report_with_findings
        from lostflops.explain.analyze.report import report, show_job

        claims = _claims(peak_tflops, model_flops, tokens_per_step, samples_per_step)
        answer = report(
            self.stored, window=_window(window), ranks=rank, steps=step, by=by, said=claims, progress=progress
        )
        is_whole = not (rank or step or window)
        answer = report_with_findings(answer, self.stored, shown=not job) if findings and is_whole else answer
        return show_job(answer) if job else answer

    def diagnose(
        self,
        *,
        usd_per_hour: float | None = None,
        top: int = 5,
        calibration: Place | None = None,
        topology: str | None = None,
        keep: bool = False,
        progress: Progress | None = None,
    ) -> Result:
        """Return why the run is slow and what each fix saves. `keep` stores the predictions, to be scored later."""
        from lostflops.explain.advise.diagnosis import as_result, stored_diagnosis

        times = _times(calibration, topology)
        if times is None and usd_per_hour is None and (found := stored_diagnosis(self.stored)) is not None:
            return as_result(self.stored, found, top, keep=keep)
        from lostflops.explain.advise.diagnose import diagnose

        return diagnose(self.stored, times, usd_per_hour=usd_per_hour, most=top, keep=keep, progress=progress)

    def explain(
        self,
        number: int = 1,
        *,
        usd_per_hour: float | None = None,
        calibration: Place | None = None,
        topology: str | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Return one finding in full, by its number in `diagnose`."""
        from lostflops.explain.advise.explain import explain

        times = _times(calibration, topology)
        return explain(self.stored, number, times, usd_per_hour=usd_per_hour, progress=progress)

    def steps(self, *, rank: Numbers = (), step: Numbers = (), progress: Progress | None = None) -> Result:
        """Return how long each step took."""
        from lostflops.explain.analyze.steps import steps

        return steps(self.stored, ranks=rank, steps=step, progress=progress)

    def kernels(
        self,
        *,
        window: str | None = None,
        rank: Numbers = (),
        step: Numbers = (),
        limit: int = 20,
        full_names: bool = False,
        progress: Progress | None = None,
    ) -> Result:
        """Return which kernels take the time of the device."""
        from lostflops.explain.analyze.kernels import kernels

        part: dict[str, Any] = {"window": _window(window), "ranks": rank, "steps": step, "progress": progress}
        return kernels(self.stored, **part, limit=limit, full_names=full_names)

    def comm(
        self,
        *,
        window: str | None = None,
        rank: Numbers = (),
        step: Numbers = (),
        limit: int = 20,
        overlap: bool = False,
        layers: bool = False,
        topology: Path | str | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Return calls, sizes and bandwidth of the communication; with `overlap` what runs at the same time, with
        `layers` the calls of each FSDP unit and layer beside its compute.

        NCCL's choices in ingested logs are compared with its model for the `topology`, a name or a file.
        """
        from lostflops.explain.analyze.comm import comm
        from lostflops.explain.analyze.layers import layers as show_layers
        from lostflops.explain.analyze.overlap import overlap as show_overlap
        from lostflops.predict.costs.topology import read_topology

        if overlap and layers:
            raise UsageError("choose overlap or layers: each is an answer of its own")
        part: dict[str, Any] = {"window": _window(window), "ranks": rank, "steps": step, "progress": progress}
        if overlap:
            return show_overlap(self.stored, **part)
        if layers:
            return show_layers(self.stored, **part, limit=limit)
        described = None if topology is None else read_topology(topology)
        return comm(self.stored, **part, limit=limit, topology=described)

    def ranks(
        self,
        *,
        window: str | None = None,
        step: Numbers = (),
        mesh: str | None = None,
        limit: int = 12,
        by_step: bool = False,
        progress: Progress | None = None,
    ) -> Result:
        """Return which ranks are late, and why; with `by_step` when. `mesh` is such as "tp=8,dp=16"."""
        from lostflops.account.align.mesh import parse
        from lostflops.explain.advise.summary import ranks_with_findings
        from lostflops.explain.analyze.lateness import lateness
        from lostflops.explain.analyze.ranks import ranks

        part: dict[str, Any] = {
            "window": _window(window),
            "steps": step,
            "mesh": None if mesh is None else parse(mesh),
            "progress": progress,
        }
        if by_step:
            return lateness(self.stored, **part)
        answer = ranks(self.stored, **part, limit=limit)
        return answer if window or step or mesh else ranks_with_findings(answer, self.stored)

    def pipeline(self, *, mesh: str | None = None) -> Result:
        """Return the bubble of pipeline-parallel training, and what causes it."""
        from lostflops.account.align.mesh import parse
        from lostflops.explain.advise.summary import pipeline_with_findings
        from lostflops.explain.analyze.pipeline import pipeline

        answer = pipeline(self.stored, mesh=None if mesh is None else parse(mesh))
        return pipeline_with_findings(answer, self.stored) if mesh is None and answer.blocks else answer

    def path(self, *, step: int | None = None, top: int = 10, progress: Progress | None = None) -> Result:
        """Return the critical path: what the step time depends on."""
        from lostflops.predict.graph.critical import critical

        return critical(self.stored, step=step, top=top, progress=progress)

    def memory(
        self,
        *,
        rank: Numbers = (),
        device: str | None = None,
        by: str = "layer",
        frontier: bool = False,
        progress: Progress | None = None,
    ) -> Result:
        """Return what uses the memory and what made the peak; with `frontier` what recomputation would save.

        `by` is layer, module, op or line.
        """
        from lostflops.account.ledger.scope import scope
        from lostflops.explain.analyze.memory import memory
        from lostflops.predict.whatif.recomputation.tables import frontier_of

        if frontier:
            if device is not None or by != "layer":
                raise UsageError("the frontier is by module, on the device with the highest peak: omit device and by")
            return frontier_of(self.stored, scope(self.stored, None, rank).ranks if rank else ())
        return memory(self.stored, ranks=rank, device=device, by=by, progress=progress)

    def flame(
        self,
        *,
        lines: Sequence[str] = (),
        window: str | None = None,
        rank: Numbers = (),
        step: Numbers = (),
        progress: Progress | None = None,
    ) -> Result:
        """Return in which functions the host loses time, on these lines of the ledger or on all that the host
        causes."""
        from lostflops.account.ledger.lines import HOST_LINES
        from lostflops.explain.analyze.flame import flame

        chosen = tuple(lines) or HOST_LINES
        return flame(self.stored, window=_window(window), ranks=rank, steps=step, lines=chosen, progress=progress)

    def whatif(
        self,
        *changes: str,
        calibration: Place | None = None,
        topology: str | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Return the step time with these changes, such as "bucket_mb=50"; without changes rank all of them."""
        from lostflops.core.results import Figure
        from lostflops.explain.advise.summary import ranking_with_findings
        from lostflops.predict.whatif.answer import parse_change
        from lostflops.predict.whatif.baseline import baseline, replayed_once
        from lostflops.predict.whatif.ranking import ranking
        from lostflops.predict.whatif.whatif import whatif

        times = _times(calibration, topology)
        if changes:
            return whatif(self.stored, [parse_change(change) for change in changes], times, progress=progress)
        with replayed_once():
            answer, best = ranking(baseline(self.stored, times, progress=progress), progress=progress)
            answer = ranking_with_findings(answer, self.stored) if times is None else answer
        return dataclasses.replace(answer, more=(*answer.more, Figure("best", best or None)))

    def changes(
        self,
        *,
        calibration: Place | None = None,
        topology: str | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Return all changes that `whatif` knows, and which apply to this run."""
        from lostflops.core.errors import UnknownCost
        from lostflops.predict.whatif.baseline import baseline
        from lostflops.predict.whatif.ranking import listing

        times = _times(calibration, topology)
        try:
            return listing(baseline(self.stored, times, progress=progress))
        except (UnknownCost, UsageError) as error:
            return listing(None, str(error))

    def tune(
        self,
        sizes: Sequence[float | str] = (1, 2, 5, 10, 25, 50, 100, 200),
        *,
        calibration: Place | None = None,
        topology: str | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Return the size of gradient buckets, in MiB, that makes the step shortest."""
        from lostflops.predict.whatif.baseline import baseline
        from lostflops.predict.whatif.tune import tune_bucket

        start = baseline(self.stored, _times(calibration, topology))
        return tune_bucket(start, [str(size) for size in sizes], progress=progress)

    def scale(
        self,
        ranks: Numbers,
        *,
        calibration: Place | None = None,
        topology: str | None = None,
        strong: bool = False,
        ranks_per_host: int | None = None,
        mesh: str | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Return the step time at other numbers of ranks."""
        from lostflops.account.align.mesh import parse
        from lostflops.predict.scaling.scale import scale

        cluster = read_cluster(calibration, topology)
        return scale(
            self.stored,
            list(ranks),
            times_of(calibration, cluster),
            strong=strong,
            mesh=None if mesh is None else parse(mesh),
            ranks_per_host=ranks_per_host or (cluster.gpus_per_host if cluster else None),
            progress=progress,
        )

    def devices(
        self,
        *,
        prices: Place | None = None,
        tokens_per_step: float | None = None,
        samples_per_step: float | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Return the step time on every known device, the fastest first; with a file of prices also the cost."""
        from lostflops.predict.elsewhere.devices import devices
        from lostflops.predict.elsewhere.prices import read_prices

        claims = _claims(None, None, tokens_per_step, samples_per_step)
        priced = None if prices is None else read_prices(Path(prices))
        return devices(self.stored, priced, claims, progress=progress)

    def predictions(self) -> Result:
        """Return the predictions that were made from this run, with their scores."""
        from lostflops.predict.whatif.score import list_predictions

        return list_predictions(self.stored)

    def hang(self, *, limit: int = 20) -> Result:
        """Return which ranks block a hung job, from the Flight Recorder dumps in the run."""
        from lostflops.explain.analyze.hang import hang

        return hang(self.stored, limit=limit)

    def page(
        self,
        file: Place,
        *,
        peak_tflops: float | None = None,
        model_flops: float | None = None,
        tokens_per_step: float | None = None,
        samples_per_step: float | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Write all views of the run into one HTML file, and return where."""
        from lostflops.show.pages.page import page_of, questions_for
        from lostflops.show.report.html import check_file, save_page

        check_file(Path(file))
        claims = _claims(peak_tflops, model_flops, tokens_per_step, samples_per_step)
        made = page_of(self.stored, questions_for(claims), progress)
        return save_page(made, Path(file))

    def log_to(self, tracker: str, where: str) -> str:
        """Log the summary of the run to "wandb", "mlflow" or "tensorboard", and return where to look.

        `where` is a project of W&B, a tracking URI of MLflow or a folder of TensorBoard.
        """
        from io import StringIO
        from tempfile import TemporaryDirectory

        from lostflops.explain.advise.summary import card
        from lostflops.show.export.trackers import Summary, log
        from lostflops.show.pages.tracker_figures import metrics, series
        from lostflops.show.report import markdown

        with TemporaryDirectory(prefix="lostflops-") as folder:
            report, text = self.report(), StringIO()
            markdown.write(card(report), text)
            page = Path(folder) / "lostflops-report.html"
            self.page(page)
            summary = Summary(self.stored.name, metrics(report), series(self.stored), text.getvalue(), page)
            return log(tracker, summary, where)

    def close(self) -> None:
        self.stored.close()

    def _repr_html_(self) -> str | None:
        """Show what the run holds, in a notebook."""
        return self.stored._repr_html_()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(run: Place, *, progress: Progress | None = None) -> TrainingRun:  # noqa: A001 - `lostflops.open(...)` is how it is called
    """Open a run: a folder, or an address such as "s3://bucket/run".

    Ledgers that are missing are computed and stored in the run; `progress(done, total)` counts their ranks.
    """
    from lostflops.account.derive.derive import with_accounts
    from lostflops.store.run import Run

    return TrainingRun(with_accounts(Run.open(run), progress))


def ingest(
    sources: Runs,
    out: Place,
    *,
    workers: int | None = None,
    replace: bool = False,
    engine: str = "local",
    progress: Callable[[IngestProgress], None] | None = None,
    ledger_progress: Progress | None = None,
) -> Result:
    """Read traces (files, folders, globs) into a run, and return what was read. Open the run with `open(out)`.

    `progress` reports the reading of files; `ledger_progress(done, total)` then counts ranks with a new ledger.
    """
    import duckdb

    from lostflops.account.derive.derive import derive
    from lostflops.account.ledger.few_steps import is_large
    from lostflops.explain.advise.diagnose import diagnosis_of
    from lostflops.explain.analyze.quality import quality
    from lostflops.fleet.summarise import summary_of
    from lostflops.ingest import ingest as read_traces
    from lostflops.ingest.summary import summarise
    from lostflops.store.places import place_of, remote
    from lostflops.store.spread.engines import ChosenEngine
    from lostflops.store.spread.names import EngineName

    chosen = EngineName(engine)
    summary = read_traces(
        _sources(sources), Path(out), workers=workers, replace=replace, engine=chosen, progress=progress
    )
    if chosen is not EngineName.LOCAL and remote(Path(out)):
        return summarise(summary, None)  # a run that many machines wrote is not copied here before it is asked for
    with suppress(RunError, OSError, duckdb.Error):  # whoever asks first computes the ledgers, or says what is wrong
        derive(place_of(out), ChosenEngine(chosen, workers), ledger_progress)
    with open(out) as run:
        with suppress(LostflopsError):  # a question that shows findings says what is wrong
            if not remote(Path(out)) and not is_large(run.stored):
                diagnosis_of(run.stored)
                with suppress(Exception):  # the traces are read, and `fleet` makes it again or says what is wrong
                    summary_of(run.stored)
        return summarise(summary, quality(run.stored))


def ask_fleet(
    place: Place,
    *,
    by: str = "",
    job: str = "",
    labels: Sequence[str] = (),
    since: str = "",
    week: str = "",
    host: str = "",
    status: str = "",
    progress: Progress | None = None,
) -> Result:
    """Return what many runs show together: hours by cause, fixes, slow hosts, jobs.

    `place` is a folder with runs in it, or where `add_to_fleet` put them. `by` is job, device, host, week, or the name
    of a label. The other options choose runs: `job` by name, in which `*` is any letters; `labels` are written as
    "team=vision", `since` and `week` as "2026-01-31", where a week is named by any of its days; `status` is slower,
    faster, unchanged or unknown.
    """
    from lostflops.collect.labels import parse_label
    from lostflops.fleet.answer import answer_fleet
    from lostflops.fleet.choose import FleetScope
    from lostflops.fleet.place import open_fleet

    try:
        chosen = dict(parse_label(one) for one in labels)
    except ValueError as error:
        raise UsageError(str(error)) from None
    scope = FleetScope(
        job=job,
        since=_day(since, "since") if since else None,
        week=_day(week, "week") if week else None,
        host=host,
        status=_job_status(status) if status else None,
        labels=chosen,
    )
    return answer_fleet(open_fleet(place, _summarise_counted(progress)), scope, by)


def add_to_fleet(
    place: Place, runs: Sequence[Place], *, seconds: float = 300.0, progress: Progress | None = None
) -> Result:
    """Add the summaries of runs to a fleet in one commit; a run that is there already is replaced.

    If some of several runs cannot be read, the others are added before the error. If other writers keep the fleet busy
    for about `seconds`, RunBusy is raised.
    """
    import duckdb

    from lostflops.core.results import Pair, Pairs
    from lostflops.core.units import pluralise
    from lostflops.fleet.changes import add_runs
    from lostflops.fleet.summarise import summary_of

    made, unread = [], list[str]()
    for number, path in enumerate(runs):
        if progress is not None:
            progress(number, len(runs))
        try:
            with open(path) as run:
                made.append(summary_of(run.stored))
        except (LostflopsError, OSError, duckdb.Error) as error:
            if len(runs) == 1:
                raise
            unread.append(f"{path}: {error}")
    count = add_runs(place, made, seconds)
    if unread:
        raise RunError(f"{len(unread)} of {len(runs)} runs were not added to {place}. {' '.join(unread)}")
    counted = Pairs("added", "", (Pair("place", str(place), "", "Fleet"), Pair("runs", count, "count", "Runs")))
    return _short("fleet_add", "Added", f"{pluralise(count, 'run')} added to {place}.", counted)


def compact_fleet(place: Place) -> Result:
    """Merge the small files of a fleet."""
    from lostflops.core.results import Pair, Pairs
    from lostflops.core.units import pluralise
    from lostflops.fleet.changes import compact

    count = compact(place)
    verdict = f"Merged {pluralise(count, 'small file')}." if count else "No small files: there is nothing to merge."
    return _short("fleet_compact", "Compacted", verdict, Pairs("merged", "", (Pair("files", count, "count", "Files"),)))


def expire_fleet(place: Place, before: str) -> Result:
    """Forget the runs that ended before a day, written as "2026-01-31", and remove the versions that held them."""
    from datetime import UTC, datetime

    from lostflops.core.results import Pair, Pairs
    from lostflops.core.units import pluralise
    from lostflops.fleet.changes import expire, remove_runs

    count = remove_runs(place, datetime.combine(_day(before, "before"), datetime.min.time(), UTC))
    expire(place, datetime.now(UTC))
    verdict = f"{pluralise(count, 'run')} that ended before {before} {'is' if count == 1 else 'are'} no longer known."
    return _short("fleet_expire", "Expired", verdict, Pairs("removed", "", (Pair("runs", count, "count", "Runs"),)))


def _short(name: str, title: str, verdict: str, counted: Pairs) -> Result:
    from lostflops.core.results import Result

    return Result(name=name, title=title, verdict=verdict, blocks=(counted,))


def _day(text: str, option: str) -> date:
    from datetime import date

    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--{option} {text} is not a day: write it as 2026-01-31") from None


def _job_status(text: str) -> JobStatus:
    from lostflops.fleet.regressions import JobStatus

    try:
        return JobStatus(text)
    except ValueError:
        raise UsageError(f"--status {text} is not known: write {', '.join(JobStatus)}") from None


def _summarise_counted(progress: Progress | None) -> Callable[[Run], RunSummary]:
    from lostflops.account.derive.derive import with_accounts
    from lostflops.fleet.summarise import summary_of

    def summarise(run: Run) -> RunSummary:
        accounted = with_accounts(run, progress)
        try:
            return summary_of(accounted)
        finally:
            if accounted is not run:
                accounted.close()

    return summarise


def diff(
    before: Runs, after: Runs, *, margin: float = 0.02, anyway: bool = False, progress: Progress | None = None
) -> Result:
    """Compare two runs, or two groups of runs: which is faster, and where."""
    from lostflops.explain.compare.compare_runs import compare_runs

    return compare_runs(_runs(before), _runs(after), margin=margin, anyway=anyway, progress=progress)


def diff_page(
    before: Runs,
    after: Runs,
    file: Place,
    *,
    margin: float = 0.02,
    anyway: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Compare two runs, or two groups of runs, in one HTML file, and return where it is.

    It has the answer of `diff`, the median steps of both on one time axis, all that changed, and the findings of each.
    """
    from lostflops.show.pages.comparison import comparison_page
    from lostflops.show.report.html import check_file, save_page

    check_file(Path(file))
    sides = _runs(before), _runs(after)
    made = comparison_page(*sides, margin=margin, anyway=anyway, progress=progress, open_run=_open_stored)
    return save_page(made, Path(file))


def _open_stored(run: Path) -> Run:
    """Open a run, and compute what it should store and does not."""
    return open(run).stored


def gate(
    baseline: Runs,
    candidate: Runs,
    *,
    max_regress: float = 0.03,
    anyway: bool = False,
    progress: Progress | None = None,
) -> tuple[Result, int]:
    """Return whether the candidate is slower than its baseline, and the exit code for CI.

    The code is 0 within the limit, 1 after a regression, 3 if the runs do not decide.
    """
    from lostflops.explain.compare.gate import gate as judge
    from lostflops.explain.compare.sides import read_pair

    pair = read_pair(_runs(baseline), _runs(candidate), anyway=anyway, progress=progress)
    answer, outcome = judge(pair, max_regress)
    return answer, outcome.exit_code


def score(prediction: str, measured: Place, *, made_from: Place | None = None) -> Result:
    """Compare a prediction of `whatif`, by its id, with a run that was made with the change."""
    from lostflops.core.results import Figure
    from lostflops.predict.whatif.predictions import find
    from lostflops.predict.whatif.score import score as compare

    with open(measured) as run:
        places = [_local(made_from)] if made_from else [run.folder.parent, Path.cwd()]
        found, holder = find(prediction, places, known=made_from is None)
        answer = compare(found, holder, run.stored)
    return dataclasses.replace(answer, more=(*answer.more, Figure("predicted_from", str(holder))))


def hang(dumps: Runs, *, limit: int = 20) -> Result:
    """Return which ranks block a hung job, from Flight Recorder dumps (files, folders, globs) or from a run."""
    from tempfile import TemporaryDirectory

    from lostflops.ingest import ingest as read_traces

    places = _sources(dumps)
    if len(places) == 1 and not has_dumps(places[0]) and (captured := _files_of_capture(places[0])):
        places = captured
    elif len(places) == 1 and is_run(places[0]):
        with open(places[0]) as run:
            return run.hang(limit=limit)
    with TemporaryDirectory(prefix="lostflops-hang-") as folder:
        read_traces(places, Path(folder) / "run")
        with open(Path(folder) / "run") as run:
            return run.hang(limit=limit)


def has_dumps(place: Place) -> bool:
    """Return whether a place is a run into which Flight Recorder dumps were read."""
    from lostflops.store.run import Run

    if not is_run(place):
        return False
    with Run.open(place) as run:
        return bool(run.rows("select 1 from flight limit 1"))


def _files_of_capture(place: Place) -> list[str]:
    """Return the dumps and records that the ranks of a job left in its capture; raise if it has no dump."""
    from lostflops.collect.capture import FLIGHT_PREFIX, FOLDER, SUFFIX

    folder = Path(place) / FOLDER
    records = sorted(folder.rglob(f"*{SUFFIX}"))
    dumps = sorted(folder.glob(f"{FLIGHT_PREFIX}*"))
    if records and not dumps:
        raise UsageError(
            f"no rank of {place} is known to hang: none has left a Flight Recorder dump. A rank writes one when a step "
            "lasts for 8 s and three times as long as the last ones. If the job hangs, ask again in a few seconds; "
            f"{shlex.join(('lostflops', 'watch', str(place), '--once'))} shows its last steps."
        )
    return [str(path) for path in (*dumps, *records)]


def is_run(place: Place) -> bool:
    """Return whether a folder or an address is a run."""
    from lostflops.store.manifest import FILE_NAME
    from lostflops.store.mirror import is_run_at
    from lostflops.store.places import remote

    address = remote(Path(place))
    return is_run_at(address) if address is not None else (Path(place) / FILE_NAME).is_file()


def verify(run: Place, *, progress: Progress | None = None) -> Result:
    """Return whether every file of a run, in a folder or an object store, has the bytes that were written.

    `is_intact` says so; `damaged` lists files that do not. `progress(done, total)` counts files.
    """
    from lostflops.store.verify import verify as compare_with_checksums

    return compare_with_checksums(run, progress)


def doctor(
    run: Place | None = None,
    *,
    python: str | None = None,
    cluster: bool = False,
    seconds: float | None = None,
    device: str | None = None,
    topology: Place | None = None,
) -> Result:
    """Return what can be measured on this machine, and what the collector of a run could not measure.

    With `cluster`, measure all ranks of the job that this process is a rank of, and return whether they are healthy:
    every rank calls it, before its own process group exists, and every rank gets the result. Then `run` is the folder
    that the job writes to. It ends after at most `seconds` (60 if None). With a `topology`, collectives are compared
    with NCCL's model.
    """
    _check_doctor_options(python, cluster=cluster, seconds=seconds, device=device, topology=topology)
    if cluster:
        return _doctor_cluster(Path(run or ""), 60 if seconds is None else seconds, device, topology)
    import os
    import sys

    from lostflops.collect.capture import FOLDER
    from lostflops.doctor.capture_checks import capture_checks
    from lostflops.doctor.host_checks import host_checks
    from lostflops.doctor.probes import look
    from lostflops.doctor.result import result
    from lostflops.doctor.torch_checks import torch_checks

    machine = look(Path(run or ""), python or sys.executable, os.environ)
    checks = [*torch_checks(machine), *host_checks(machine)]
    if run is not None and (Path(run) / FOLDER).is_dir():
        checks += capture_checks(Path(run) / FOLDER)
    return result(checks)


def _check_doctor_options(python: str | None, *, cluster: bool, **of_cluster: object) -> None:
    """Refuse an option that the chosen check would ignore."""
    from lostflops.core.errors import UsageError

    if cluster:
        if python is not None:
            raise UsageError("--python is not for --cluster, where each rank uses the Python that it was started with")
        return
    given = [f"--{name}" for name, value in of_cluster.items() if value is not None]
    if given:
        others = "leave it out" if len(given) == 1 else "leave them out"
        raise UsageError(f"only --cluster has {' and '.join(given)}: add --cluster, or {others}")


def _doctor_cluster(folder: Path, seconds: float, device: str | None, topology: Place | None) -> Result:
    import os
    from dataclasses import asdict
    from importlib.util import find_spec

    from lostflops.core.errors import UsageError
    from lostflops.doctor.cluster_checks import cluster_checks, read_ranks
    from lostflops.doctor.cluster_result import cluster_result
    from lostflops.doctor.probes import disk
    from lostflops.predict.costs.nccl import slowest_expected
    from lostflops.predict.costs.topology import read_topology

    if find_spec("torch") is None:
        raise UsageError("torch is not installed for this Python; start the ranks with the Python of the job.")
    from lostflops.collect.calibrate.health import examine

    described = None if topology is None else read_topology(topology)
    health = examine(os.environ, device, seconds, {"disk": asdict(disk(folder))})
    limits = {}
    if described is not None and health.ranks[0]["nccl"] is not None:
        limits = slowest_expected(health.collectives, described)
    checks = cluster_checks(health.ranks, health.collectives, limits)
    return cluster_result(checks, read_ranks(health.ranks), health.notes)


def estimate(
    model: Place,
    *,
    device: str | None = None,
    topology: str | None = None,
    calibration: Place | None = None,
    memory: str | None = None,
    **job: Any,
) -> Result:
    """Predict step time and memory of a job before it is launched, from a description of its model.

    `job` has the fields of a description, such as dp, tp, cp, pp, virtual_stages, zero, microbatch, batch, sequence,
    dtype, precision, recompute, optimizer and compiled.
    """
    return estimate_on(model, device=device, topology=topology, calibration=calibration, memory=memory, job=job)[0]


def scale(
    description: Place,
    ranks: Numbers,
    *,
    topology: str | None = None,
    calibration: Place | None = None,
    strong: bool = False,
    batch: int | None = None,
) -> Result:
    """Return the step time of a described job at other numbers of ranks, from its measured `step_seconds`."""
    from lostflops.predict.estimate.machine import machine as find_machine
    from lostflops.predict.estimate.request import request
    from lostflops.predict.scaling.described import scale_description

    asked = request(str(description), {})
    if topology is None and calibration is None:
        raise UsageError("the device and network of a described job are unknown: give --topology or --calibration")
    file = None if calibration is None else Path(calibration)
    machine = find_machine(asked.job.dtype, device=None, topology=topology, calibration=file, memory=None)
    return scale_description(asked, machine, list(ranks), strong=strong, batch=batch)


def estimate_on(
    model: Place,
    *,
    device: str | None,
    topology: str | None,
    calibration: Place | None,
    memory: str | None,
    job: dict[str, Any],
) -> tuple[Result, int, int]:
    """Return an estimate, its number of ranks, and the ranks of a host."""
    from lostflops.core.units import parse_bytes
    from lostflops.predict.estimate.estimate import estimate as compute
    from lostflops.predict.estimate.machine import machine as find_machine
    from lostflops.predict.estimate.request import demand_of, request
    from lostflops.predict.estimate.result import result

    capacity = None if memory is None else parse_bytes(memory)
    if capacity is not None and capacity <= 0:
        raise UsageError(f"--memory {memory} is not above zero: give a size such as 80GiB")
    asked = request(str(model), {name: value for name, value in job.items() if value is not None})
    file = None if calibration is None else Path(calibration)
    machine = find_machine(asked.job.dtype, device=device, topology=topology, calibration=file, memory=capacity)
    answer = result(compute(demand_of(asked, machine.per_host), machine), asked.remarks)
    return answer, asked.job.ranks, machine.per_host


def _window(name: str | None) -> WindowKind | None:
    from lostflops.account.ledger.windows import WindowKind

    if name not in (None, "steps", "trace"):
        raise UsageError(f"window {name!r} is neither 'steps' nor 'trace'")
    return WindowKind(name) if name else None


def _claims(*values: float | None) -> Claims:
    from math import isfinite

    from lostflops.account.ledger.mfu import Claims

    if not all(value is None or isfinite(value) for value in values):
        raise UsageError("the peak, FLOPs, tokens and samples must be finite numbers")
    return Claims(*values)


def _sources(places: Runs) -> list[str]:
    """Return each place as it was given: a path would lose the slashes of an address."""
    return [str(places)] if isinstance(places, str | Path) else [str(place) for place in places]


def _runs(places: Runs) -> list[Path]:
    return [Path(place) for place in _sources(places)]


def _local(run: Place) -> Path:
    """Return the folder of a run; predictions from a run in a store are kept beside the copy that is here."""
    from lostflops.store.mirror import mirror_run
    from lostflops.store.places import remote

    address = remote(Path(run))
    return mirror_run(address) if address is not None else Path(run)


def _times(calibration: Place | None, topology: str | None) -> Callable[[OwnTimes], CommTimes] | None:
    """Return how long collectives take elsewhere; None where the run's own times are meant."""
    cluster = read_cluster(calibration, topology)
    return times_of(calibration, cluster) if calibration or cluster else None


def read_cluster(calibration: Place | None, topology: str | None) -> NetworkTopology | None:
    from lostflops.predict.costs.topology import read_topology

    if calibration is not None and topology is not None:
        raise UsageError(
            "--calibration and --topology cannot be combined: give only one (a calibration is more accurate)"
        )
    return None if topology is None else read_topology(topology)


def times_of(calibration: Place | None, topology: NetworkTopology | None) -> Callable[[OwnTimes], CommTimes]:
    """Return a function from the run's own times to the times of collectives elsewhere."""
    from lostflops.core.errors import UnknownCost
    from lostflops.predict.costs.calibration import read_calibration
    from lostflops.predict.costs.collective_times import CollectiveTimes

    def times(own: OwnTimes) -> CommTimes:
        if topology is not None:
            if own.backend == "gloo":
                raise UnknownCost("the run used gloo, but topologies describe NCCL only: give --calibration")
            return CollectiveTimes.of(topology=topology)
        if calibration is not None:
            return CollectiveTimes.of(calibration=read_calibration(Path(calibration)), learned=own)
        return CollectiveTimes.of(learned=own)

    return times
