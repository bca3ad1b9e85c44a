"""Memory at the points that the program marked: its range over ranks, and its growth since each rank's last mark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from lostflops.core.results import Field, Table
from lostflops.core.units import format_bytes, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

_MOST_SHOWN: Final = 20
_OF_DEVICE: Final = ": memory allocated on the device, over ranks, and its change since the mark before"
_OF_PROCESS: Final = ": resident memory of the process, over ranks, and its change since the mark before"
_QUERY: Final = """
    with asked as (
        select * from marks where attempt = (select max(attempt) from marks){where}
    ), placed as (
        select *, max(occurrence) over (partition by name) > 0 as is_repeated, if(is_repeated, step, null) as in_step,
               if(is_repeated, row_number() over (partition by rank, name, step order by number) - 1, 0) as again
        from asked
    ), sized as (
        select *, if(count(device) over (partition by rank) > 0, 'device', 'process') as kind,
               if(kind = 'device', if(device is null, 0, allocated), resident) as used
        from placed
    ), changed as (
        select *, used - lag(used) over (partition by rank order by number) as change from sized
    )
    select name, again::int, is_repeated, kind, min(step), max(step), count(*), min(used), max(used),
           arg_max(rank, (used, -rank)), min(change), max(change), max(reserved), max(peak), max(resident)
    from changed group by name, is_repeated, in_step, again, kind order by median(time), min(number), name"""


def table(run: Run, ranks: Sequence[int] = ()) -> Table:
    """Return the marks of the last attempt that has any, in order of time. A device that a process had not used yet
    held nothing. Marks of a name that repeats are compared within each step, since ranks may set them in different
    steps."""
    where = f" and rank in ({', '.join(map(str, ranks))})" if ranks else ""
    rows = []
    for name, again, is_repeated, kind, step, *rest in run.rows(_QUERY.format(where=where)):
        title = _title(name, again, step if is_repeated else None)
        rows.append((title, name, again, kind, step, *rest))
    kinds, counts = {row[3] for row in rows}, {row[6] for row in rows}
    fields = (
        Field("title", label="mark"),
        Field("mark", shown=False),
        Field("occurrence", shown=False),
        Field("kind", label="memory of", shown=len(kinds) > 1),
        Field("step"),
        Field("last_step", shown=False),
        Field("ranks", "count", shown=len(counts) > 1),
        Field("lowest", "bytes"),
        Field("highest", "bytes"),
        Field("highest_rank", label="on rank", shown=counts != {1}),
        Field("least_change", "bytes", "change from"),
        Field("most_change", "bytes", "to"),
        Field("reserved", "bytes", shown="device" in kinds),
        Field("peak", "bytes", shown="device" in kinds),
        Field("resident", "bytes", shown=False),
    )
    of = _OF_DEVICE if kinds == {"device"} else _OF_PROCESS if kinds == {"process"} else ""
    return Table("marks", f"At marks of the program{of}", fields, tuple(rows), most_shown=_MOST_SHOWN)


def _title(name: str, again: int, step: int | None) -> str:
    """Return the name of a mark, with its step if the name repeats, and its number if it repeats within the step.

    >>> _title("init", 0, None), _title("loss", 0, 4), _title("loss", 1, 4)
    ('init', 'loss, step 4', 'loss, step 4 (2)')
    """
    where = "" if step is None else f", step {step}"
    return f"{name}{where} ({again + 1})" if again else f"{name}{where}"


def describe(marks: Table) -> str:
    """Return the mark with the most memory, in words; empty without marks."""
    known: list[dict[str, Any]] = [row for row in marks.to_json() if row["highest"] is not None]
    if not known:
        return ""
    top = max(known, key=lambda row: (row["kind"] == "device", row["highest"]))
    where = "allocated on its device" if top["kind"] == "device" else "resident"
    return (
        f"The program set {pluralise(len(marks.rows), 'mark')}. {top['title']!r} has the most memory: "
        f"{format_bytes(top['highest'])} {where} on rank {top['highest_rank']}."
    )


def notes(run: Run) -> Iterator[str]:
    """Yield how many marks are missing."""
    for count, reason in run.rows("select sum(count), any_value(reason) from stats where what = 'marks_dropped'"):
        if count:
            yield f"{pluralise(int(count), 'mark')} were not recorded: {reason}."
