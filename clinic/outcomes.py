"""Outcomes: every finding of a library, with whether it was right and what the fix saved."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, median, variance
from typing import Final

from clinic.scoring import Finding, Outcome
from lostflops.core.estimate import Kind, Strength

OUTCOMES: Final = Path(__file__).with_name("results") / "outcomes.csv"
DIGITS: Final = 4
"""Of a share in the table: a hundredth of a percent is less than any measurement."""

PAIRS: Final = 5
"""Pairs of measurements that show how far two of them are apart; with fewer, none is taken from another time."""
NORMAL_MEDIAN: Final = 0.6745
"""Half of normal deviates are smaller than this, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Row:
    """A finding of an entry; an entry without findings has a row whose cause is empty."""

    job: str
    """The patient: its entries are never split between fitting and checking."""
    entry: str
    is_real: bool
    is_sick: bool
    busy: int
    load: float
    cause: str = ""
    strength: Strength | None = Strength.WEAK
    """None if it was not weak, and nothing else was kept."""
    kind: Kind | None = None
    """None for a finding that costs no time yet."""
    value: float = 0.0
    low: float | None = None
    high: float | None = None
    """The estimate before it is calibrated."""
    is_right: bool | None = None
    """None for an entry without findings, and for a side effect of the planted fault, which is not counted."""
    measured: float | None = None
    """What the fix saves, where the job has no other fault."""
    error: float = 0.0
    """Standard error of `measured`."""
    is_unseen: bool = False
    """Whether no rule had been corrected on its job when it was scored."""

    @property
    def has_range(self) -> bool:
        """Whether the measured saving can be compared with the estimate."""
        return bool(self.is_right) and self.measured is not None and self.low is not None


@dataclass(frozen=True, slots=True)
class Named:
    """A cause that a diagnosis names, with its estimate before calibration."""

    cause: str
    strength: Strength | None
    kind: Kind | None
    value: float
    low: float | None
    high: float | None
    ranks: tuple[int, ...]


SLOWS_MESSAGES: Final = ("bucket_size", "fsdp_accumulation", "fsdp_units", "missing_no_sync", "slow_link")
SIDE_EFFECTS: Final = dict.fromkeys((*SLOWS_MESSAGES, "small_messages"), ("exposed_comm",))
"""By planted cause, causes that it brings with it, so that its fix removes them too: naming one is neither right nor
wrong, and is not counted. More messages, or slower ones, are exposed communication."""


def rows_of(truth: Outcome, entry: str, named: Sequence[Named], saving: tuple[float, float] | None) -> Iterator[Row]:
    """Yield the rows of an entry, found to be right or wrong by its truth. `saving` is what was measured, and its
    standard error."""
    known = Row(truth.name, entry, truth.is_real, bool(truth.causes), truth.busy, truth.load or 0.0)
    for one in named:
        is_right = judge(truth, one)
        is_measured = saving is not None and is_right and len(truth.causes) == 1
        measured, error = saving if saving is not None and is_measured else (None, 0.0)
        yield replace(
            known,
            cause=one.cause,
            strength=one.strength,
            kind=one.kind,
            value=one.value,
            low=one.low,
            high=one.high,
            is_right=is_right,
            measured=measured,
            error=error,
        )
    if not named:
        yield known


def earlier_rows(outcome: Outcome, entry: str, *, is_unseen: bool) -> Iterator[Row]:
    """Yield the rows of an outcome in `clinic/results`; `is_unseen` says that no rule had been corrected on its job.

    Where strengths and kinds were not kept, what was found was not weak, and a range that begins at zero was a bound.
    Savings are left out: other code estimates now.
    """
    if not outcome.skipped and not outcome.failed:
        for row in rows_of(outcome, entry, [_earlier(one) for one in outcome.findings], None):
            yield replace(row, is_unseen=is_unseen)


def _earlier(one: Finding) -> Named:
    strength = Strength(one.strength) if one.strength else Strength.WEAK if one.is_suspected else None
    if not one.gain:
        return Named(one.cause, strength, None, 0.0, None, None, one.ranks)
    kind = Kind(one.kind) if one.kind else Kind.BOUND if one.low == 0 else Kind.REPLAYED
    return Named(one.cause, strength, kind, one.gain, None, None, one.ranks)


def judge(truth: Outcome, named: Named) -> bool | None:
    """Return whether the cause is one that was planted, on the rank where it was; None for its side effects."""
    if any(named.cause in ids for ids in truth.names):
        return truth.rank is None or named.ranks == (truth.rank,)
    is_side_effect = any(named.cause in SIDE_EFFECTS.get(cause, ()) for cause in truth.causes)
    return None if is_side_effect else False


def write_rows(rows: Sequence[Row]) -> str:
    """Return rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(Row))
    for row in rows:
        writer.writerow(_cell(value) for value in asdict(row).values())
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.{DIGITS}f}" if isinstance(value, float) else str(value)


def read_rows(text: str) -> list[Row]:
    """Return the rows that `write_rows` wrote."""
    return [_row(told) for told in csv.DictReader(io.StringIO(text))]


def _row(told: dict[str, str]) -> Row:
    def number(name: str) -> float | None:
        return float(told[name]) if told[name] else None

    return Row(
        told["job"],
        told["entry"],
        told["is_real"] == "1",
        told["is_sick"] == "1",
        int(told["busy"]),
        float(told["load"]),
        told["cause"],
        Strength(told["strength"]) if told["strength"] else None,
        Kind(told["kind"]) if told["kind"] else None,
        float(told["value"]),
        number("low"),
        number("high"),
        None if not told["is_right"] else told["is_right"] == "1",
        number("measured"),
        float(told["error"]),
        told["is_unseen"] == "1",
    )


def by_entry(rows: Iterable[Row]) -> list[float]:
    """Return the weight of each row: every job counts as one, however often it was recorded, and all findings of a
    recording count alike."""
    rows = list(rows)
    entries: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        entries[row.job].add(row.entry)
    return [1 / len(entries[row.job]) for row in rows]


def by_job(rows: Iterable[Row]) -> list[float]:
    """Return the weight of each row, if each saving counts: every job counts as one, however often it was recorded."""
    rows = list(rows)
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row.job] += 1
    return [1 / counts[row.job] for row in rows]


Saving = tuple[float, float]
"""A measured saving and its standard error."""


def measured_savings(truths: Sequence[Outcome], earlier: Sequence[Outcome] = ()) -> list[Saving | None]:
    """Return the saving of each entry. An entry that was not timed takes the median of what was measured of its job at
    other times, with an error that says how far two such measurements are apart."""
    known: dict[str, list[float]] = defaultdict(list)
    for truth in (*earlier, *truths):
        if truth.measured is not None:
            known[truth.name].append(truth.measured)
    usual, apart = _usual_spread(truths), spread_between(truths, known)
    return [_saving(truth, known[truth.name], usual[truth.is_real], apart) for truth in truths]


def _saving(truth: Outcome, known: Sequence[float], usual: float, apart: float | None) -> Saving | None:
    if truth.rounds:
        return median(truth.rounds), standard_error(truth.rounds, usual)
    if apart is None or not known or not truth.causes:
        return None
    return (median(known) if truth.measured is None else truth.measured), apart


def _usual_spread(truths: Sequence[Outcome]) -> dict[bool, float]:
    """Return the usual standard deviation of a round, of real and of simulated jobs."""
    found = {}
    for is_real in (True, False):
        variances = [variance(one.rounds) for one in truths if one.is_real is is_real and len(one.rounds) > 1]
        found[is_real] = fmean(variances) ** 0.5 if variances else 0.0
    return found


def spread_between(truths: Sequence[Outcome], known: Mapping[str, Sequence[float]]) -> float | None:
    """Return the standard deviation of one measurement of a real job's saving, from measurements at different times.

    It follows from the median of their differences, so that a broken measurement does not count. None if too few
    jobs were measured twice.
    """
    real = sorted({truth.name for truth in truths if truth.is_real})
    differences = [abs(one - other) for name in real for one, other in combinations(known.get(name, ()), 2)]
    return median(differences) / (NORMAL_MEDIAN * 2**0.5) if len(differences) >= PAIRS else None


def standard_error(rounds: Sequence[float], usual: float) -> float:
    """Return the standard error of a saving's median over rounds, which are few: their variance is drawn towards the
    `usual` one, which counts as much as two rounds more."""
    middle = fmean(rounds)
    spread = sum((one - middle) ** 2 for one in rounds) + 2 * usual**2
    return (spread / (len(rounds) + 1) / len(rounds)) ** 0.5
