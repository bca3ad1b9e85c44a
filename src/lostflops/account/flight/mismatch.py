"""Which ranks made another call than the others at the same place?

Calls with the same group and sequence number are compared: the operation always; the size if all ranks must give the
same: all-reduce, reduce, broadcast, and all-gather and reduce-scatter of single tensors (`_base`); the type if values
are reduced. Shapes may differ as long as the bytes do not; all-to-all, gather, scatter and lists may be uneven. Only
the first mismatch of each group is reported, since later ones follow from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lostflops.account.flight.standing import ENTRIES

if TYPE_CHECKING:
    from lostflops.store.run import Run

_QUERY: Final = f"""{ENTRIES},
    suspects as (
        select group_id, seq from entries
        where not is_p2p and seq is not null and group_id is not null and op is not null
        group by all
        having min(op) <> max(op) or (min(op) in ('all_reduce', 'reduce', 'broadcast', 'all_gather', 'reduce_scatter')
            and (min(bytes_in) <> max(bytes_in) or min(bytes_out) <> max(bytes_out) or min(dtype) <> max(dtype)))
    ),
    sized as (
        select rank, group_id, seq, record, op,
            case
                when name like '%sparse%' or name like '%oop%' or bytes_in is null then op
                when op in ('all_reduce', 'reduce') then concat_ws(' ', op, dtype, bytes_in || ' B')
                when op = 'broadcast' then concat_ws(' ', op, bytes_in || ' B')
                when op = 'reduce_scatter' and name like '%_base'
                    then concat_ws(' ', op, dtype, bytes_in || ' B to ' || bytes_out || ' B')
                when op = 'all_gather' and name like '%_base'
                    then concat_ws(' ', op, bytes_in || ' B to ' || bytes_out || ' B')
                else op
            end as call
        from entries semi join suspects using (group_id, seq) where not is_p2p and op is not null
    ),
    oldest as (
        select rank, min(record) as record from entries where (select is_full from dump) group by rank
        having min(record) > 0
    ),
    calls as (
        select s.rank, group_id, seq, string_agg(op, ' + ' order by s.record) as op,
               string_agg(call, ' + ' order by s.record) as call
        from sized s left join oldest o on o.rank = s.rank
        group by s.rank, group_id, seq
        -- The oldest call of a ring may have lost its beginning.
        having coalesce(min(s.record) > any_value(o.record), true)
    ),
    places as (
        select group_id, seq, count(distinct op) > 1 as is_op from calls group by all having count(distinct call) > 1
    ),
    firsts as (select group_id, min(seq) as seq from places group by all)
    select group_id, seq, is_op, call, list(rank order by rank)
    from calls semi join firsts using (group_id, seq) join places using (group_id, seq)
    group by all order by group_id, count(*), call"""


class Mismatch(NamedTuple):
    group: str
    seq: int
    what: str
    """`op`, `size` or `order`."""
    ranks: tuple[int, ...]
    """Ranks in the minority; all of them if there is none."""
    called: str
    others: str


def mismatches(run: Run) -> list[Mismatch]:
    found: dict[tuple[str, int], list[tuple[bool, str, list[int]]]] = {}
    for group, seq, is_op, call, ranks in run.rows(_QUERY):
        found.setdefault((group, seq), []).append((is_op, call, ranks))
    return [_mismatch(group, seq, calls) for (group, seq), calls in found.items()]


def _mismatch(group: str, seq: int, calls: list[tuple[bool, str, list[int]]]) -> Mismatch:
    *few, (is_op, common, most) = calls
    what = "op" if is_op else "size"
    if len(few[-1][2]) == len(most):
        few = calls
    ranks = tuple(sorted(rank for _, _, ranks in few for rank in ranks))
    return Mismatch(group, seq, what, ranks, " or ".join(call for _, call, _ in few), common)
