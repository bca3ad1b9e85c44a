"""Make the summary of a run, and store it there."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from msgspec import structs

from lostflops._version import __version__
from lostflops.account.align.mesh import recognise
from lostflops.account.job.life import TRAINING, UNKNOWN, life_of
from lostflops.account.late.ranks import judge_ranks
from lostflops.account.ledger.answers import total_of
from lostflops.account.ledger.mfu import Claims, waterfall
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.windows import WindowKind
from lostflops.account.pace.normal import normal_steps
from lostflops.account.pace.timings import PACED, JobPace, choose_pace, paces, within
from lostflops.core.errors import BrokenRun
from lostflops.explain.advise.diagnose import diagnosis_of
from lostflops.fleet.summary import FindingSummary, HostSummary, PaceSummary, RunSummary, check_summary
from lostflops.store.derived import add_tables, code_digest, data_digest
from lostflops.store.tables import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lostflops.account.late.comparison import Comparison
    from lostflops.account.ledger.total import RankLines, RunLedger
    from lostflops.store.run import Run

INTERVALS: Final = 64
"""Most intervals of the pace."""
MOST_FINDINGS: Final = 20
_FACTS: Final = """
    select key, value from job where key in ('labels', 'commit', 'script', 'torch') order by attempt, rank desc"""
_SESSIONS: Final = "select session from attempts where session is not null order by attempt, rank limit 1"
_KINDS: Final = """
    select list(distinct device order by device), list(distinct backend order by backend) from ranks"""
_LIVED: Final = "select min(start), max(stop), count(distinct attempt) from attempts"
_SPANNED: Final = "select min(start), max(stop) from spans"
_PACE: Final = f"""
    with {PACED},
    counted as (
        select *, row_number() over (order by attempt, step) - 1 as place, count(*) over () as whole from paced
    ),
    begun as (select attempt, step, min(start) as start from own group by attempt, step)
    select attempt, min(begun.start), count(*), median(ns), quantile_cont(ns, 0.95)
    from counted join begun using (attempt, step) group by attempt, place * {INTERVALS} // whole
    order by min(place)"""


def summary_of(run: Run) -> RunSummary:
    """Return the summary that a run stores; without one, make it and store it."""
    return _read_stored(run) or _store(run, summarise(run))


def _read_stored(run: Run) -> RunSummary | None:
    if not run.manifest.files.get(SUMMARY.name):
        return None
    rows = run.rows(f"select document from summary where code = '{_code()}'")
    if not rows:
        return None
    try:
        found = msgspec.json.decode(rows[0][0], type=RunSummary)
        check_summary(found)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):  # changed by hand: made again
        return None
    return structs.replace(found, address=run.address)  # the run may have been moved since


def _store(run: Run, made: RunSummary) -> RunSummary:
    if run.manifest.generation and run.address == str(run.path):
        row = {"code": [_code()], "document": [msgspec.json.encode(made).decode()]}
        add_tables(run.path, data_digest(run.manifest), {SUMMARY: row})
    return made


def _code() -> str:
    return code_digest("account", "core", "explain", "fleet", "predict", "store")


def summarise(run: Run) -> RunSummary:
    """Make the summary of a run, whose ledgers are stored or can be computed."""
    asked = scope(run, None)
    total = total_of(run, asked)
    pace = choose_pace(paces(run))
    facts = _read_facts(run)
    labels = _read_labels(facts.get("labels"))
    whole = total.total_ns * run.world_size // max(len(total.ranks), 1)
    life = life_of(run) or Counter({TRAINING if asked.kind is WindowKind.STEPS else UNKNOWN: whole})
    life = Counter({line: ns for line, ns in life.items() if ns})
    [(devices, backends)] = run.rows(_KINDS)
    normal = normal_steps(run)
    start, stop, attempts = _read_life(run)
    made = RunSummary(
        run=_identify(run),
        name=labels.get("job") or _read_text(facts.get("script")) or PurePosixPath(run.address).name,
        labels=labels,
        address=run.address,
        start=start,
        stop=max(start, stop),
        attempts=attempts,
        ranks=run.world_size,
        device=" + ".join(filter(None, devices)) or None,
        backend=" + ".join(filter(None, backends)) or None,
        torch=_read_text(facts.get("torch")),
        lostflops=__version__,
        commit=_read_text(facts.get("commit")),
        steps=sum(one.steps for one in paces(run)) or None,
        step_ns=_step_ns(pace, total) if normal is None else normal.location.value,
        step_error=None if normal is None or not np.isfinite(normal.location.error) else normal.location.error,
        tokens_per_second=None if pace is None else pace.tokens_per_second,
        samples_per_second=None if pace is None else pace.samples_per_second,
        mfu=waterfall(run, asked, total, Claims()).value,
        total_ns=sum(life.values()),
        life=dict(life),
        window_ns=total.total_ns,
        normal_ns=None if normal is None or not total.step_count else round(normal.location.value * total.step_count),
        lines={line: ns for line, ns in total.lines.items() if ns},
        hosts=list(_summarise_hosts(run, total)),
        pace=[_pace(row) for row in run.rows(_PACE.format(within=within(())))],
        findings=list(_summarise_findings(run)),
    )
    try:
        check_summary(made)
    except ValueError as error:
        raise BrokenRun(f"the times of a run contradict each other: {error}. Ingest its traces again.") from None
    return made


def _read_facts(run: Run) -> dict[str, Any]:
    """Return what the newest attempt said of the job; its lowest rank counts."""
    found: dict[str, Any] = {}
    for key, value in run.rows(_FACTS):
        with suppress(ValueError):
            found[key] = json.loads(value)
    return found


def _read_labels(value: Any) -> dict[str, str]:
    return {name: str(text) for name, text in value.items()} if isinstance(value, dict) else {}


def _read_text(value: Any) -> str | None:
    """Return a fact that should be text; a capture may come from anybody."""
    return value if isinstance(value, str) else None


def _identify(run: Run) -> str:
    """Return a name of the job that more of its data does not change: of its first session; without a session, of its
    files."""
    sessions = run.rows(_SESSIONS)
    known = sessions[0][0] if sessions else "\n".join(sorted(source.hash for source in run.manifest.sources))
    return hashlib.sha256(known.encode()).hexdigest()[:32]


def _read_life(run: Run) -> tuple[int, int, int]:
    """Return when the job started and stopped, and its attempts; for runs of traces when these did."""
    [(start, stop, attempts)] = run.rows(_LIVED)
    if start is None:
        [(start, stop)] = run.rows(_SPANNED)
    return start or 0, stop or start or 0, attempts


def _step_ns(pace: JobPace | None, total: RunLedger) -> float | None:
    if pace is not None and pace.p50:
        return pace.p50
    return total.total_ns / total.step_count if total.step_count else None


def _pace(row: tuple[Any, ...]) -> PaceSummary:
    attempt, start, steps, middle, slow = row
    return PaceSummary(attempt=attempt, start=start, steps=steps, step_ns=float(middle), slow_ns=float(slow))


def _summarise_findings(run: Run) -> Iterator[FindingSummary]:
    if not run.ranks:
        return
    for one in diagnosis_of(run).findings[:MOST_FINDINGS]:
        gain = one.saving
        yield FindingSummary(
            id=one.id,
            level=one.level,
            cause=one.cause,
            what=one.what,
            fix=one.fix,
            gain=None if gain is None else gain.value,
            gain_low=None if gain is None else gain.low,
            gain_high=None if gain is None else gain.high,
        )


def _summarise_hosts(run: Run, total: RunLedger) -> Iterator[HostSummary]:
    """Yield the hosts of a run, each once for each kind of device."""
    places = {rank: (host, device) for rank, host, device in run.rows("select rank, host, device from ranks")}
    members: dict[tuple[str | None, str | None], list[RankLines]] = {}
    for one in total.ranks:
        members.setdefault(places[one.rank], []).append(one)
    slower = _compare_hosts(run, places) if len({host for host, _ in members}) > 1 else {}
    for (host, device), ranks in members.items():
        lines: Counter[str] = Counter()
        for one in ranks:
            lines.update({line: ns for line, ns in one.lines.items() if ns})
        more, error = slower.get((host, device), (None, None))
        yield HostSummary(
            host=host,
            device=device,
            ranks=len(ranks),
            window_ns=sum(one.wall for one in ranks),
            lines=dict(lines),
            slower=more,
            slower_error=error,
        )


def _compare_hosts(
    run: Run, places: Mapping[int, tuple[str | None, str | None]]
) -> dict[tuple[str | None, str | None], tuple[float, float | None]]:
    """Return how much more own time the ranks of each host need than ranks with the same work, and its error.

    Ranks whose peers are all on the same host say nothing of that host.
    """
    asked = scope(run, None)
    found = judge_ranks(run, asked, recognise(run)).comparison
    hosts = {rank: places[rank] for rank in found.ranks.tolist()}
    across = {
        label
        for label in np.unique(found.cohort).tolist()
        if len({hosts[rank] for rank in found.ranks[found.cohort == label].tolist()}) > 1
    }
    by_host: dict[tuple[str | None, str | None], list[int]] = {}
    for place, (rank, label) in enumerate(zip(found.ranks.tolist(), found.cohort.tolist(), strict=True)):
        if label in across:
            by_host.setdefault(hosts[rank], []).append(place)
    made = {host: _excess(found, rows) for host, rows in by_host.items()}
    middle = float(np.median([more for more, _ in made.values()])) if made else 0.0
    return {host: (more - middle, error) for host, (more, error) in made.items()}


def _excess(found: Comparison, rows: list[int]) -> tuple[float, float | None]:
    """Return the excess of some ranks as a part of the usual time, and its standard error over steps."""
    usual = float((found.own[rows] - found.excess[rows]).sum())
    if usual <= 0:
        return 0.0, None
    by_step = np.nansum(found.by_step[rows], axis=0)[~np.isnan(found.by_step[rows]).any(axis=0)]
    error = None
    if by_step.size > 1:
        error = float(by_step.std(ddof=1) / np.sqrt(by_step.size)) / usual
    return float(found.excess[rows].sum()) / usual, error
