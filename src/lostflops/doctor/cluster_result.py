"""The checks of a cluster as one result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lostflops.core.results import Field, Figure, Result, Table
from lostflops.core.units import pluralise
from lostflops.doctor.cluster_checks import ClusterCheck, RankHealth

_MOST_RANKS: Final = 16


def cluster_result(checks: Sequence[ClusterCheck], ranks: Sequence[RankHealth], notes: Sequence[str]) -> Result:
    shown = ("check", "state", "finding", "where")
    rows = tuple((check.name, check.state, check.finding, check.where, check.remedy) for check in checks)
    fields = (*(Field(name) for name in shown), Field("do", shown=False))
    wrong = [check for check in checks if check.state != "pass"]
    return Result(
        "doctor_cluster",
        "Health of the cluster",
        _verdict(checks, ranks),
        (Table("checks", "", fields, rows), _table(ranks)),
        (*(f"{check.name} ({check.state}): {check.remedy}." for check in wrong if check.remedy), *notes),
        more=(Figure("is_healthy", is_healthy(checks)),),
    )


def is_healthy(checks: Sequence[ClusterCheck]) -> bool:
    """Return whether no check failed; warnings do not count."""
    return not any(check.state == "fail" for check in checks)


def _verdict(checks: Sequence[ClusterCheck], ranks: Sequence[RankHealth]) -> str:
    failed = [check for check in checks if check.state == "fail"]
    warned = sum(check.state == "warn" for check in checks)
    hosts = pluralise(len({rank.host for rank in ranks}), "host")
    if failed:
        first = f"{failed[0].name}: {failed[0].where.split(';')[0]}"
        return (
            f"FAIL: {len(failed)} of {len(checks)} checks on {pluralise(len(ranks), 'rank')}, {hosts}. First: {first}."
        )
    more = f", {warned} with a warning" if warned else ""
    return f"PASS: {len(checks)} checks on {pluralise(len(ranks), 'rank')}, {hosts}{more}."


def _table(ranks: Sequence[RankHealth]) -> Table:
    devices = {rank.device for rank in ranks}
    is_known = any(rank.tflops_of_peak is not None for rank in ranks)
    fields = (
        Field("rank"),
        Field("host"),
        Field("device", shown=len(devices) > 1),
        Field("tflops", label="TFLOPS"),
        Field("tflops_of_peak", "share", "of peak", shown=is_known),
        Field("memory_gbs", "gbs", "memory"),
        Field("memory_of_peak", "share", "of peak", shown=is_known),
        Field("inside_gbs", "gbs", "in host", shown=any(rank.inside_gbs for rank in ranks)),
        Field("across_gbs", "gbs", "across", shown=any(rank.across_gbs for rank in ranks)),
    )
    rows = tuple(
        (
            *(rank.rank, rank.host, rank.device, _round(rank.tflops[0]), rank.tflops_of_peak),
            *(rank.memory_gbs[0], rank.memory_of_peak),
            rank.inside_gbs[0] if rank.inside_gbs else None,
            rank.across_gbs[0] if rank.across_gbs else None,
        )
        for rank in sorted(ranks, key=lambda rank: rank.tflops[0])
    )
    return Table("ranks", "By rank, the slowest first (memory and links in GB/s)", fields, rows, most_shown=_MOST_RANKS)


def _round(tflops: float) -> float:
    """Return three digits: more are noise."""
    return float(f"{tflops:.3g}")
