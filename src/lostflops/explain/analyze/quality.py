"""How far can each rank's data be trusted?

A rank is `good`, `usable` (its numbers are right, but have gaps) or `poor` (too much data is missing for a
verdict). The judgement comes from table `stats`:

| observation | usable above | poor above | share of |
|---|---|---|---|
| no timed events and no timed steps, only a Flight Recorder dump, a log of NCCL or a capture | any | | |
| no timed events otherwise | | any | |
| `bytes_unread` | 0 | 50% | the file's bytes (unknown for a `.gz`, which is never poor) |
| `events_out_of_window` | 0 | | |
| `truncated`, `rank_assigned`, `missing_steps`, `no_steps`, `repeated_steps`, `unreadable_header` | 0 | | |
| `steps_from_marks`, `steps_from_optimizer`, `steps_from_kernels`, `steps_disagree` | 0 | | |
| `kernels_without_launch` | 5% | | kernels, including communication |
| `collectives_without_metadata` | 5% | | collectives |
| `overlapping_events` | 1% | | events |
| `copies_without_launch`, `collectives_without_group` | never | | common; counted in `stats` |
| `shapes_dropped`, `comms_without_kernel` | never | | do not affect times |
| `flight_entries_malformed`, `flight_fields_unreadable` | 0 | | |
| `flight_fields_missing`, `flight_groups_unknown` | never | | older recorders and gloo never write them |
| anything about a log of NCCL | never | | does not affect times |
| `torn_frames` of a capture | 0 | | |
| `ring_entries_lost`, `enqueues_without_group` of a capture | 5% | | enqueued collectives, including lost ones |
| `samples_without_stack`, `device_times_without_step` of a capture | never | | |
| `marks_dropped`, `network_missing` of a capture | never | | do not affect times |
| `records_missing`, anything else of a capture with effect `dropped` | 0 | 10% | its records, including missing ones |
| anything else with effect `dropped` | 0 | 10% | events, including dropped ones |
| anything else with effect `missing` | 0 | | |
| anything else with effect `repaired` or `guessed` | 1% | | events |
| anything else with effect `note` | never | | |
"""

from typing import TYPE_CHECKING, Any

from lostflops.account.facts.inferred_steps import INFERRED_FROM
from lostflops.core.results import Field, Pair, Pairs, Result, Table
from lostflops.core.units import format_share, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_RANKS = 10
MOST_REASONS = 3
VERDICTS = ("good", "usable", "poor")

_NEVER = 1e9
_ANY = (0.0, _NEVER)
_BY_NAME = {
    "bytes_unread": (0.0, 0.5),
    "truncated": _ANY,
    "events_out_of_window": _ANY,
    "rank_assigned": _ANY,
    "missing_steps": _ANY,
    "no_steps": _ANY,
    **dict.fromkeys(INFERRED_FROM, _ANY),
    "steps_disagree": _ANY,
    "repeated_steps": _ANY,
    "unreadable_header": _ANY,
    "kernels_without_launch": (0.05, _NEVER),
    "collectives_without_metadata": (0.05, _NEVER),
    "overlapping_events": (0.01, _NEVER),
    "copies_without_launch": (_NEVER, _NEVER),
    "collectives_without_group": (_NEVER, _NEVER),
    "shapes_dropped": (_NEVER, _NEVER),
    "comms_without_kernel": (_NEVER, _NEVER),
    "flight_entries_malformed": _ANY,
    "flight_fields_unreadable": _ANY,
    "flight_fields_missing": (_NEVER, _NEVER),
    "flight_groups_unknown": (_NEVER, _NEVER),
    **dict.fromkeys(
        (
            *("nccl_lines_unreadable", "nccl_links_ambiguous", "nccl_choices_ambiguous"),
            *("nccl_facts_dropped", "nccl_log_damaged"),
        ),
        (_NEVER, _NEVER),
    ),
    "torn_frames": _ANY,
    "ring_entries_lost": (0.05, _NEVER),
    "enqueues_without_group": (0.05, _NEVER),
    "samples_without_stack": (_NEVER, _NEVER),
    "device_times_without_step": (_NEVER, _NEVER),
    "marks_dropped": (_NEVER, _NEVER),
    "network_missing": (_NEVER, _NEVER),
    "records_missing": (0.0, 0.1),
}
_BY_EFFECT = {
    "dropped": (0.0, 0.1),
    "missing": (0.0, _NEVER),
    "repaired": (0.01, _NEVER),
    "guessed": (0.01, _NEVER),
    "note": (_NEVER, _NEVER),
}


def _values(limits: dict[str, tuple[float, float]]) -> str:
    return ", ".join(f"('{key}', {usable}::double, {poor}::double)" for key, (usable, poor) in limits.items())


# The big tables are read only for ranks where a share of them is asked for.
_QUERY = f"""
    with by_name(what, usable_above, poor_above) as (values {_values(_BY_NAME)}),
    by_effect(effect, usable_above, poor_above) as (values {_values(_BY_EFFECT)}),
    observed as (
        select rank, format, what, effect, sum(count)::double as n from stats group by all having sum(count) > 0
    ),
    captured as (select rank, sum(records)::double as n from attempts group by rank),
    enqueued as (
        select rank, count(*) as n from enqueues
        where rank in (select rank from observed where what in ('ring_entries_lost', 'enqueues_without_group'))
        group by rank
    ),
    kernels as (
        select rank, count(*) as n from events
        where kind in ('kernel', 'comm')
          and rank in (select rank from observed where what = 'kernels_without_launch')
        group by rank
    ),
    transfers as (
        select rank, count(*) as n from collectives
        where rank in (select rank from observed where what = 'collectives_without_metadata')
        group by rank
    ),
    shares as (
        select observed.*,
               observed.n / nullif(case what
                   when 'bytes_unread' then if(ranks.source like '%.gz', null, ranks.source_bytes)
                   when 'kernels_without_launch' then kernels.n
                   when 'collectives_without_metadata' then transfers.n
                   when 'enqueues_without_group' then enqueued.n
                   when 'ring_entries_lost' then coalesce(enqueued.n, 0) + observed.n
                   else if(format = 'capture', coalesce(captured.n, 0) + observed.n,
                           ranks.events + if(effect in ('dropped', 'missing'), observed.n, 0))
               end, 0) as share
        from observed join ranks using (rank) left join kernels using (rank) left join transfers using (rank)
        left join captured using (rank) left join enqueued using (rank)
    ),
    judged as (
        select shares.rank, shares.what, shares.n::bigint as n, shares.share,
               case when share > coalesce(by_name.poor_above, by_effect.poor_above) then 2
                    when coalesce(share, 1) > coalesce(by_name.usable_above, by_effect.usable_above) then 1
                    else 0 end as level
        from shares left join by_name using (what) left join by_effect on shares.effect = by_effect.effect
    ),
    untimed as (
        select rank, 'no_timed_events' as what, 0 as n, 1.0 as share,
               if(regexp_full_match(formats, '(flight_recorder|nccl_log|capture|,)+'), 1, 2) as level
        from ranks where events = 0 and rank not in (select rank from timings)
    ),
    verdicts as (
        select ranks.rank, coalesce(max(level), 0) as level, max(share) as worst,
               list({{'what': what, 'n': n, 'share': share}} order by level desc, share desc, what) as reasons
        from ranks left join (from judged where level > 0 union all from untimed) as doubts using (rank)
        group by ranks.rank
    )
    select rank, level, reasons,
           count(*) filter (where level = 0) over (), count(*) filter (where level = 1) over (),
           count(*) filter (where level = 2) over ()
    from verdicts order by level desc, worst desc nulls last, rank limit {MOST_RANKS}"""


def quality(run: "Run") -> Result:
    rows = run.rows(_QUERY)
    good, usable, poor = rows[0][3:6] if rows else (0, 0, 0)
    doubtful = tuple(
        (rank, VERDICTS[level], "; ".join(map(_reason, reasons[:MOST_REASONS])))
        for rank, level, reasons, *_ in rows
        if level
    )
    return Result(
        name="quality",
        title="Data quality",
        verdict=_verdict(good, usable, poor),
        blocks=(
            Pairs(
                "verdicts",
                "",
                (Pair("good", good, "count"), Pair("usable", usable, "count"), Pair("poor", poor, "count")),
            ),
            Table(
                "doubtful_ranks",
                "Ranks with gaps, worst first",
                (Field("rank"), Field("quality"), Field("reasons")),
                doubtful,
                usable + poor - len(doubtful),
            ),
        )
        if usable + poor
        else (),
        notes=(f"Only the {MOST_RANKS} worst ranks are listed.",) if usable + poor > MOST_RANKS else (),
    )


def _verdict(good: int, usable: int, poor: int) -> str:
    total = good + usable + poor
    if total == 0:
        return "The run has no ranks."
    if good == total:
        return f"Data quality: all {total:,} ranks are good." if total > 1 else "Data quality: the rank is good."
    if usable == total:
        named = f"all {total:,} ranks are" if total > 1 else "the rank is"
        return f"Data quality: {named} usable, with gaps."
    return f"Data quality of {pluralise(total, 'rank')}: {good:,} good, {usable:,} usable with gaps, {poor:,} poor."


def _reason(reason: dict[str, Any]) -> str:
    if reason["what"] == "no_timed_events":
        return "no timed events"
    if _BY_NAME.get(reason["what"]) == _ANY or reason["share"] is None:
        return f"{reason['what']}: {reason['n']:,}"
    return f"{reason['what']}: {reason['n']:,} ({format_share(reason['share'])})"
