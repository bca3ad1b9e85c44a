import numpy as np
import pytest

from lostflops.account.align.mesh import Mesh
from lostflops.predict.costs.curve import Constant
from lostflops.predict.costs.times import CollectiveTime, CommGroup, Op
from lostflops.predict.scaling.growth import Growing, MeshLayout
from lostflops.predict.scaling.own_times import proportional
from lostflops.predict.scaling.retime import CallKind, Retiming


def arranged(per_host: int, **sizes: int) -> MeshLayout:
    """Dimensions with the fastest first, ranks of a host side by side."""
    dimensions = tuple(sizes.items())
    world = int(np.prod(list(sizes.values())))
    grown = next(kind for kind in ("dp_replicate", "dp") if kind in sizes)
    mesh = Mesh(dimensions, range(world), "given")
    return MeshLayout(mesh, {rank: rank // per_host for rank in range(world)}, per_host, world // sizes[grown])


@pytest.mark.parametrize(
    ("layout", "group", "ranks", "expected"),
    [
        (arranged(8, dp=8), "0@0-7", 64, CommGroup(64, 8)),
        (arranged(8, dp=8), "0@0-7", 4, CommGroup(4, 1)),
        (arranged(8, tp=8, dp=2), "1@0-8/8", 64, CommGroup(8, 8)),
        (arranged(8, tp=2, dp=4), "1@0-6/2", 64, CommGroup(32, 8)),
        (arranged(8, tp=2, dp=4), "2@0-1", 64, CommGroup(2, 1)),
        (arranged(8, tp=2, dp=4), "0@0-7", 64, CommGroup(64, 8)),
        (arranged(8, dp_shard=8, dp_replicate=2), "1@0-7", 64, CommGroup(8, 1)),
        (arranged(8, dp_shard=8, dp_replicate=2), "2@0-8/8", 64, CommGroup(8, 8)),
    ],
)
def test_groups_at_other_numbers_of_ranks(layout: MeshLayout, group: str, ranks: int, expected: CommGroup) -> None:
    assert layout.at(group, ranks) == expected
    assert layout.at(group, layout.world) == layout.recorded_group(group)


class Carried:
    """Doubles with the ranks, and is only sure within a tenth; how sure is said twice."""

    def time(self, op: Op, size: int, group: CommGroup, algorithm: str | None = None) -> CollectiveTime:
        ns, wide = 1000.0 * group.ranks, 1.1 * (group.ranks / 8)
        return CollectiveTime(
            ns=ns,
            low=ns / wide,
            high=ns * wide,
            algorithm="ring",
            source="a run",
            reach="" if group.ranks == 8 else "carried over",
        )


def test_what_both_times_share_cancels() -> None:
    retiming = Retiming(Growing(arranged(1, dp=8)), Carried())
    found = retiming.factor(CallKind("all_reduce", 1000, "0@0-7"), 16)
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 1.0, 4.0))
    assert retiming.factor(CallKind("all_reduce", 1000, "0@0-7"), 8).value == 1


def test_what_has_no_model_stays() -> None:
    retiming = Retiming(Growing(arranged(1, dp=8)), Carried())
    assert retiming.factor(CallKind("barrier", 8, "0@0-7"), 16).value == 1
    assert retiming.factor(CallKind("all_reduce", None, "0@0-7"), 16).value == 1
    assert retiming.factor(CallKind("all_reduce", 1000, "unknown group"), 16).value == 1


def test_one_size_is_bandwidth_with_room_for_latency() -> None:
    (piece,) = proportional({1000: [4e6, 5e6, 6e6]}, 9e6).pieces
    assert piece.alpha == Constant(0.0, 0.0, 5e6)
    assert (piece.beta.low, piece.beta.value) == (0.0, 5000.0)
