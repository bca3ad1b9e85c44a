"""What was alive at the peak: by owner, part and place, as integers that sum to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.account.memory.made import Block, memory, step

from lostflops.account.memory.blocks import BEFORE, RankMemory
from lostflops.account.memory.owners import OWNERS, Owner
from lostflops.account.memory.peak import EARLIER, NOTHING, WAYS, by_place, owners_after, parts_of, peak_of

NAMES = st.sampled_from(["", "layers.0.mlp", "layers.0.norm", "layers.12", "head"])
OPS = st.sampled_from(["", "aten::mm", "aten::add"])
LINES = st.sampled_from(["", "train.py:7"])


@st.composite
def made_memory(draw: st.DrawFn, rank: int = 0) -> RankMemory:
    blocks = []
    for _ in range(draw(st.integers(0, 12))):
        start = draw(st.none() | st.integers(0, 99))
        stop = draw(st.none() | st.integers(0 if start is None else start, 99))
        size, owner = draw(st.integers(1, 1000)), draw(st.sampled_from(OWNERS))
        blocks.append(Block(owner, size, start, stop, draw(NAMES), draw(OPS), draw(LINES)))
    return memory(*blocks, rank=rank, unknown=draw(st.integers(0, 50)))


def parts(made: RankMemory, by: str, event: int | None = None) -> list[tuple[str, str, int, int]]:
    found = parts_of(made, made.peak if event is None else event, by)
    return [(part.owner.value, part.name, part.bytes, part.count) for part in found]


def test_the_peak_is_told_by_the_allocation_that_made_it():
    peak = peak_of(step(layers=3, rank=2, device="cuda:1"))
    assert (peak.rank, peak.device, peak.bytes, peak.at) == (2, "cuda:1", 900 + 1800 + 1200 + 400 + 64, 50)
    assert (peak.phase, peak.step, peak.module, peak.op) == ("backward", 5, "layers.2.linear", "aten::mm")
    assert peak.line is None
    assert peak.reserved is None
    assert [owner for owner, _ in peak.largest][:2] == [Owner.OPTIMIZER, Owner.ACTIVATIONS]
    assert peak.unattributed_share == 0


def test_a_window_that_opens_with_its_peak():
    peak = peak_of(memory(Block(Owner.PARAMETERS, 10, stop=5), opened=3, unknown=2))
    assert (peak.event, peak.bytes, peak.at, peak.into_window) == (BEFORE, 12, 3, 0)
    assert (peak.phase, peak.step, peak.module, peak.op) == (None, None, None, None)
    assert peak.unattributed_share == pytest.approx(2 / 12)


def test_what_was_reserved_at_the_peak():
    made = memory(Block(Owner.ACTIVATIONS, 10, 1, 3), Block(Owner.ACTIVATIONS, 10, 2, 4), reserved=[16, 32, 48, 48])
    assert peak_of(made).reserved == 32


def test_parts_by_every_way():
    made = memory(
        Block(Owner.ACTIVATIONS, 5, 1, module="layers.0.mlp", op="aten::mm", line="model.py:3"),
        Block(Owner.ACTIVATIONS, 7, 2, module="layers.0.norm", op="aten::mul"),
        Block(Owner.TEMPORARIES, 3, 3, op="aten::mul"),
        Block(Owner.UNATTRIBUTED, 2),
        Block(Owner.UNATTRIBUTED, 1, 4),
        unknown=9,
    )
    lost = [("unattributed", EARLIER, 11, 1), ("unattributed", NOTHING, 1, 1)]
    saved = "activations"
    assert parts(made, "layer") == [(saved, "layers.0", 12, 2), ("temporaries", "aten::mul", 3, 1), *lost]
    assert parts(made, "module") == [
        (saved, "layers.0.norm", 7, 1),
        (saved, "layers.0.mlp", 5, 1),
        ("temporaries", "aten::mul", 3, 1),
        *lost,
    ]
    assert parts(made, "op")[:2] == [(saved, "aten::mul", 7, 1), (saved, "aten::mm", 5, 1)]
    assert parts(made, "line")[:2] == [(saved, "layers.0.norm", 7, 1), (saved, "model.py:3", 5, 1)]


def test_bytes_by_layer_and_by_module():
    made = step(layers=2)
    layers = by_place(made, made.peak, whole_layers=True)
    assert {name: sum(held.values()) for name, held in layers.items()} == {
        "layers.1": 300 + 600 + 400 + 400,
        "layers.0": 300 + 600 + 400,
        "(no module)": 64,
    }
    assert set(by_place(made, made.peak, whole_layers=False)) == {"layers.0.linear", "layers.1.linear", "(no module)"}


@given(made_memory(), st.sampled_from(WAYS), st.data())
def test_parts_and_places_sum_to_owners_at_any_event(made: RankMemory, by: str, data: st.DataObject):
    event = data.draw(st.integers(BEFORE, made.time.size - 1))
    owners = dict(zip((owner.value for owner in OWNERS), made.by_owner()[event + 1].tolist(), strict=True))
    assert {owner.value: held for owner, held in owners_after(made, event).items()} == owners
    sums = dict.fromkeys(owners, 0)
    for owner, _, size, _ in parts(made, by, event):
        sums[owner] += size
    assert sums == owners
    for whole_layers in (True, False):
        places = by_place(made, event, whole_layers=whole_layers)
        assert {owner.value: sum(held[owner] for held in places.values()) for owner in OWNERS} == owners


@given(made_memory())
def test_the_peak_is_the_most_that_an_observer_sees(made: RankMemory):
    """By walking through the events one by one."""
    held, most = made.base, made.base
    for event in range(made.time.size):
        held += sum(made.blocks.bytes[made.blocks.born == event].tolist())
        held -= sum(made.blocks.bytes[made.blocks.died == event].tolist())
        most = max(most, held)
    assert peak_of(made).bytes == most == sum(peak_of(made).owners.values())
