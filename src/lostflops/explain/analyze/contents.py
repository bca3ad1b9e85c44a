"""What is in the run?

Ranks, hosts, devices, steps, events by kind, collectives by operation, and everything that was dropped,
repaired, guessed or missing when the run was read. Times are those of each rank's host clock: across hosts
the span is only as exact as these clocks.
"""

from typing import TYPE_CHECKING, Any

from lostflops.core.results import Field, Pair, Pairs, Result, Table
from lostflops.core.units import format_ns, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_ROWS = 20
"""A table of the result keeps at most this many rows; the rest is counted."""

_RANKS = """
    select count(*), count(distinct host), max(world_size), count(distinct world_size), count(device),
           string_agg(distinct backend, ', ' order by backend), string_agg(distinct formats, '; ' order by formats),
           (select coalesce(sum(source_bytes), 0)::bigint from (select distinct source, source_bytes from ranks)),
           coalesce(sum(events), 0)::bigint
    from ranks"""
_DEVICES = """
    select coalesce(device, '(none recorded)'), count(*), nullif(count(distinct host), 0)
    from ranks group by all order by count(*) desc, 1"""
_KINDS = """
    select kind, count(*), count(distinct rank), min(start), max(start + dur)
    from events group by kind order by count(*) desc, kind"""
_LONGEST = """
    select max(stop - start) from (select min(start) as start, max(start + dur) as stop from events group by rank)"""
_STEPS = """
    select count(distinct step), min(step), max(step), count(distinct rank), median(stop - start)::bigint from steps"""
_TIMED = """
    select (select count(*) from (select distinct attempt, step from timings)),
           (select count(distinct attempt) from attempts), (select count(*) from enqueues)"""
_COLLECTIVES = """
    select op, count(*), count(distinct group_id), sum(bytes_in)::bigint, sum(bytes_out)::bigint
    from collectives group by op order by count(*) desc, op"""
_STATS = """
    select what, effect, count(distinct rank), sum(count)::bigint, min(reason)
    from stats group by what, effect
    order by list_position(['dropped', 'missing', 'guessed', 'repaired', 'note'], effect), sum(count) desc, what"""


def contents(run: "Run") -> Result:
    ranks, hosts, world, worlds, with_device, backends, formats, source_bytes, events = _row(run, _RANKS)
    kinds = run.rows(_KINDS)
    steps, first_step, last_step, stepped_ranks, step_ns = _row(run, _STEPS)
    timed, attempts, enqueued = _row(run, _TIMED)
    starts = [row[3] for row in kinds if row[3] is not None]
    stops = [row[4] for row in kinds if row[4] is not None]
    span = max(stops) - min(starts) if starts and stops else None
    held = Pairs(
        "held",
        "",
        (
            Pair("ranks", ranks, "count", "Ranks"),
            Pair("world_size", world, "count", "World size"),
            Pair("hosts", hosts or None, "count", "Hosts"),
            Pair("ranks_with_device", with_device, "count", "Ranks with a device"),
            Pair("backends", backends, "", "Backends"),
            Pair("formats", formats, "", "Formats"),
            Pair("steps", steps, "count", "Steps"),
            Pair("first_step", first_step, "", "First step"),
            Pair("last_step", last_step, "", "Last step"),
            Pair("median_step", step_ns, "ns", "Median step on the host"),
            Pair("timed_steps", timed, "count", "Timed steps", timed > 0),
            Pair("enqueues", enqueued, "count", "Collectives enqueued", enqueued > 0),
            Pair("attempts", attempts, "count", "Attempts", attempts > 0),
            Pair("first_event", min(starts, default=None), "time", "First event (UTC)"),
            Pair("span", span, "ns", "First to last event" + (" (by host clocks)" if hosts > 1 else "")),
            Pair("events", events, "count", "Events"),
            Pair("source_bytes", source_bytes, "bytes", "Read from"),
        ),
    )
    return Result(
        name="contents",
        title="Contents of the run",
        # Clocks of hosts may be seconds apart: then only a rank tells how long its events are.
        verdict=_verdict(ranks, world, max(steps, timed), events, _row(run, _LONGEST)[0] if hosts > 1 else span),
        blocks=(held, _devices(run), _kinds(kinds), _collectives(run), _stats(run)),
        notes=_notes(ranks, world, worlds, steps, stepped_ranks),
    )


def _verdict(ranks: int, world: int | None, steps: int, events: int, span: int | None) -> str:
    present = f"{ranks:,} of {pluralise(world, 'rank')}" if world is not None else pluralise(ranks, "rank")
    length = f" over {format_ns(span)}" if span is not None else ""
    return f"{present}, {pluralise(steps, 'step')}, {pluralise(events, 'event')}{length}."


def _notes(ranks: int, world: int | None, worlds: int, steps: int, stepped_ranks: int) -> tuple[str, ...]:
    notes = []
    if worlds > 1:
        notes.append(f"The ranks disagree on the world size ({worlds} values); the largest is shown.")
    if world is not None and ranks < world:
        notes.append(f"{world - ranks:,} of {world:,} ranks are not in the run.")
    if steps and stepped_ranks < ranks:
        notes.append(f"{ranks - stepped_ranks:,} of {ranks:,} ranks have no step.")
    return tuple(notes)


def _devices(run: "Run") -> Table:
    fields = (Field("device"), Field("ranks", "count"), Field("hosts", "count"))
    return _table("devices", "Devices", fields, run.rows(_DEVICES))


def _kinds(rows: list[tuple[Any, ...]]) -> Table:
    fields = (Field("kind"), Field("events", "count"), Field("ranks", "count"))
    return _table("kinds", "Events by kind", fields, [row[:3] for row in rows])


def _collectives(run: "Run") -> Table:
    fields = (
        Field("op"),
        Field("count", "count"),
        Field("groups", "count"),
        Field("bytes_in", "bytes", "in"),
        Field("bytes_out", "bytes", "out"),
    )
    return _table("collectives", "Collectives, summed over ranks", fields, run.rows(_COLLECTIVES))


def _stats(run: "Run") -> Table:
    fields = (Field("what"), Field("effect"), Field("ranks", "count"), Field("count", "count"), Field("reason"))
    return _table("stats", "Dropped, missing, guessed, repaired and noted data", fields, run.rows(_STATS))


def _table(name: str, title: str, fields: tuple[Field, ...], rows: list[tuple[Any, ...]]) -> Table:
    return Table(name, title, fields, tuple(rows[:MOST_ROWS]), max(len(rows) - MOST_ROWS, 0))


def _row(run: "Run", query: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] = run.rows(query)[0]
    return row
