"""Copies to the host and back, on graphs that are small enough to replay by hand, and memory of known blocks."""

from __future__ import annotations

import pytest
from tests.account.memory.made import Block, memory
from tests.predict.graph.tiny import L, T, graph, starts

from lostflops.account.ledger.phases import BACKWARD, FORWARD, OPTIMIZER
from lostflops.account.memory.owners import Owner
from lostflops.core.errors import NotApplicable, UsageError
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import LaneKind, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes.offload import CHANGE
from lostflops.predict.whatif.changes.offload.copies import activation_copies, state_copies, with_copies
from lostflops.predict.whatif.changes.offload.link import host_link
from lostflops.predict.whatif.peak_memory import at_peak

KIB = 1024


def trained(layers: int = 4, forward: int = 100, backward: int = 200, update: int = 100, updates: int = 4):
    """One kernel for each layer and pass."""
    kernels = [T(f"f{at}", forward, kind=TaskKind.KERNEL, phase=FORWARD) for at in range(layers)]
    kernels += [T(f"b{at}", backward, kind=TaskKind.KERNEL, phase=BACKWARD) for at in reversed(range(layers))]
    kernels += [T(f"u{at}", update, kind=TaskKind.KERNEL, phase=OPTIMIZER) for at in range(updates)]
    return graph([L(0, LaneKind.STREAM, kernels)], steps=[(0, 0, "", "")])


def step_with(made, copies, rate: float) -> tuple[float, dict[str, int]]:
    done = replay(with_copies(made, copies, rate))
    return done.mean_step, starts(done.graph, done.start)


def test_copies_that_are_faster_than_compute_are_hidden() -> None:
    """Layers 0 and 1 leave after their forward and are back before their backward; layers 2 and 3 stay."""
    made = trained()
    copies = activation_copies(made, [1000, 1000, 1000, 1000])
    assert [(one.inward, one.bytes) for one in copies] == [(0, 1000), (0, 1000), (1, 1000), (1, 1000)]
    assert replay(made).mean_step == 4 * 100 + 4 * 200 + 4 * 100
    step, when = step_with(made, copies, 20.0)
    assert step == replay(made).mean_step
    # The last of each name: layer 1 leaves after f1, and layer 0 comes back when the backward of layer 1 begins.
    assert when["offload to host"] == 200
    assert when["load from host"] == when["b1"] == 800


def test_slow_copies_hold_back_the_layer_two_later_and_the_backward() -> None:
    """At 4 bytes a ns a layer takes 250 ns: f2 waits for layer 0 (100 to 350), f3 for layer 1 (350 to 600). Backward of
    3 and 2 is 700 to 1100; layer 1 comes back from 900 to 1150 and layer 0 from 1150 to 1400, as b1 began at 1150."""
    step, when = step_with(trained(), activation_copies(trained(), [1000] * 4), 4.0)
    assert (when["f2"], when["f3"], when["b3"], when["b2"]) == (350, 600, 700, 900)
    assert (when["b1"], when["b0"], when["u0"]) == (1150, 1400, 1600)
    assert step == 2000


def test_units_begin_where_their_bytes_do() -> None:
    """Six kernels, and a first layer that keeps half of all bytes: it has the first three kernels."""
    made = trained(layers=6)
    out = [one for one in activation_copies(made, [300, 100, 100, 100]) if not one.inward]
    names = [made.words[made.tasks.name[one.after]] for one in out]
    assert names == ["f2", "f3"]


def test_states_come_in_slices_and_leave() -> None:
    """Four slices of 250 bytes in 100 ns each: two come in during the backward pass, the third when the first has left.
    Updates run at 1200 and 1300; the first slice has left at 1400, the third is in at 1500, the fourth at 1600."""
    made = trained()
    copies = state_copies(made, 1000)
    step, when = step_with(made, copies, 2.5)
    assert len(copies) == 8
    assert (when["u0"], when["u1"], when["u2"], when["u3"]) == (1200, 1300, 1500, 1600)
    assert step == 1800, "the last slice leaves from 1700 to 1800"
    fast, when = step_with(made, copies, 250.0)
    assert when["u3"] == 1500, "a slice that leaves and comes within an update is hidden"
    assert fast == 1600 + 1


def kept(device: str = "cuda:0"):
    """Four layers of 100 KiB each, forward at 10 to 40 and backward at 50 to 80; states of 64 and 32 KiB."""
    activations = [
        Block(Owner.ACTIVATIONS, 100 * KIB, 10 + 10 * at, 80 - 10 * at, f"layers.{at}.linear", phase="forward", step=0)
        for at in range(4)
    ]
    states = [Block(Owner.OPTIMIZER, size * KIB) for size in (64, 32)]
    return memory(*activations, *states, Block(Owner.PARAMETERS, 100 * KIB), device=device)


def facts(**changed) -> Facts:
    return Facts(**{"times": None, "device": "NVIDIA H100 80GB HBM3", "memory": kept()} | changed)


def remembered(value: str):
    assert CHANGE.remember is not None
    found = CHANGE.remember(kept(), value, facts())
    found.memory.self_check()
    return found.memory


def test_layers_that_are_away_do_not_count_in_the_peak() -> None:
    """All four layers are there at 40 in the run. Layer 0 leaves when layer 2 begins, layer 1 when layer 3 does, and
    layer 1 is back before the backward of layer 2 frees its own: two layers at most."""
    before, after = kept(), remembered("activations")
    assert at_peak(before)["activations"] == 400 * KIB
    assert at_peak(after)["activations"] == 200 * KIB
    assert before.peak_bytes - after.peak_bytes == 200 * KIB
    assert sum(after.blocks.bytes) == sum(before.blocks.bytes) + 200 * KIB, "two blocks live twice"


def test_states_leave_a_buffer_of_two_slices() -> None:
    assert at_peak(kept())["optimizer_state"] == 96 * KIB
    assert at_peak(remembered("optimizer"))["optimizer_state"] == 96 * KIB * 2 // 16


def test_a_change_says_its_bytes_link_and_what_is_not_hidden() -> None:
    edited = CHANGE.apply(trained(forward=100_000, backward=200_000), "activations", facts())
    assert edited.extra == {"bytes_each_way": 200 * KIB, "host_gbs": pytest.approx(53.55)}
    assert edited.notes[0] == (
        "205 kB move to the host and back in each step, 3.82 us each way at 53.5 GB/s (PCIe 5.0 x16 of H100-SXM5); "
        "the step gets 0 ns longer."
    )
    assert "from 26.8 to 63 GB/s" in edited.notes[1]
    assert edited.off == 0, "hidden at any rate"
    assert replay(edited.graph).mean_step == replay(trained(forward=100_000, backward=200_000)).mean_step


def test_an_unknown_link_widens_the_interval() -> None:
    made = trained(forward=100, backward=200)
    known, unknown = (CHANGE.apply(made, "activations", facts(device=name)) for name in ("H100 PCIe", "a device"))
    assert known.off > 0
    copies = activation_copies(made, [100 * KIB] * 4)
    slow, usual = (step_with(made, copies, rate)[0] for rate in (6.69375, 26.775))
    assert unknown.off == pytest.approx(slow - usual)
    assert "is assumed" in unknown.notes[0]


@pytest.mark.parametrize(
    ("name", "gbs"),
    [
        ("Tesla V100-SXM2-16GB", 15.75),
        ("NVIDIA A100-SXM4-80GB", 31.5),
        ("NVIDIA H200", 63),
        ("AMD Instinct MI300X", 63),
        ("NVIDIA B200", 63),
        ("GB200", 225),
    ],
)
def test_links_by_device(name: str, gbs: float) -> None:
    assert host_link(name).fastest == gbs
    assert host_link(name).slowest < host_link(name).rate < gbs


def test_what_is_not_known_is_not_predicted() -> None:
    with pytest.raises(UsageError, match="give activations or optimizer"):
        CHANGE.apply(trained(), "parameters", facts())
    with pytest.raises(NotApplicable, match=r"how many bytes would move was not recorded: record with --with .*memory"):
        CHANGE.apply(trained(), "activations", facts(memory=None))
    with pytest.raises(NotApplicable, match="in the memory of the host already"):
        CHANGE.apply(trained(), "optimizer", facts(memory=kept("cpu")))
    with pytest.raises(NotApplicable, match="no step keeps activations of more than 2 layers"):
        CHANGE.apply(trained(), "activations", facts(memory=memory(Block(Owner.PARAMETERS, 10), device="cuda:0")))
    with pytest.raises(NotApplicable, match="keeps no state on the device"):
        CHANGE.apply(trained(), "optimizer", facts(memory=memory(Block(Owner.PARAMETERS, 10), device="cuda:0")))
    with pytest.raises(NotApplicable, match="fewer kernels than layers"):
        CHANGE.apply(trained(layers=3), "activations", facts())


def test_several_passes_in_a_step_are_refused() -> None:
    again = Block(Owner.ACTIVATIONS, 100 * KIB, 90, 95, "layers.0.linear", phase="forward", step=0)
    grads = Block(Owner.GRADIENTS, 10 * KIB, 55, 99, phase="backward", step=0)
    own = [
        Block(Owner.ACTIVATIONS, 100 * KIB, 10 + at, 80 - at, f"layers.{at}.linear", phase="forward", step=0)
        for at in range(4)
    ]
    with pytest.raises(NotApplicable, match="several backward passes"):
        CHANGE.apply(trained(), "activations", facts(memory=memory(*own, grads, again, device="cuda:0")))
    kernels = [
        T(f"{phase}{at}", 10, kind=TaskKind.KERNEL, phase=phase) for at in range(4) for phase in (FORWARD, BACKWARD)
    ]
    twice = graph([L(0, LaneKind.STREAM, kernels)], steps=[(0, 0, "", "")])
    with pytest.raises(NotApplicable, match="alternate"):
        CHANGE.apply(twice, "activations", facts())
