"""What training programs do with memory, one habit at a time, and whose the blocks are."""

import json

import pytest
from tests.account.memory.recorded import Recorded, owned

from lostflops.account.memory.owners import CODE, Owner

FORWARD = {"sequence": 5}
"""Forward ops have a number of autograd's, and no forward thread."""


def forward(recorded, start, stop, name="aten::linear", **more):
    recorded.span(name, start, stop, **FORWARD, **more)


def test_what_backward_repeats_for_its_own_use_is_activations_and_the_rest_of_it_temporary():
    recorded = Recorded()
    recorded.step(0, 0, 100)
    forward(recorded, 5, 10)
    recorded.alloc(6, 1, 64)
    recorded.backward("LinearBackward0", 20, 50)
    recorded.alloc(21, 2, 64)  # the gradient that comes in lives on through the repetition
    forward(recorded, 22, 26)
    recorded.alloc(23, 3, 64)
    recorded.alloc(24, 4, 64)
    recorded.free(25, 4)
    recorded.span("aten::mm", 30, 40)
    recorded.alloc(31, 5, 64)
    recorded.free(32, 3)
    recorded.free(33, 2)
    recorded.free(41, 1)
    recorded.free(42, 5)
    found = recorded.read()
    assert owned(found) == {1: "activations", 2: "temporaries", 3: "activations", 4: "temporaries", 5: "temporaries"}


def test_work_of_autograd_between_two_nodes_is_part_of_the_pass():
    recorded = Recorded()
    recorded.step(0, 0, 100)
    forward(recorded, 5, 10)
    recorded.alloc(6, 1, 64)
    recorded.backward("MmBackward0", 20, 30)
    recorded.alloc(21, 2, 64)
    recorded.free(32, 1)
    recorded.alloc(33, 3, 64)
    recorded.backward("MmBackward0", 40, 50)
    recorded.free(41, 2)
    recorded.free(42, 3)
    assert owned(recorded.read()) == {1: "activations", 2: "temporaries", 3: "temporaries"}


@pytest.mark.parametrize("lane", [0, 3])
def test_gradients_live_across_microbatches_on_whatever_thread_backward_runs(lane):
    recorded = Recorded("cuda")
    recorded.step(0, 0, 100)
    for microbatch, start in enumerate((0, 40)):
        forward(recorded, start + 1, start + 10)
        recorded.alloc(start + 5, 10 + microbatch, 1_024)
        recorded.backward("MmBackward0", start + 20, start + 30, lane=lane)
        recorded.alloc(start + 22, 20 + microbatch, 512, lane=lane)
        recorded.free(start + 24, 10 + microbatch, lane=lane)
        if microbatch:  # the sum takes the place of the first
            recorded.alloc(start + 25, 30, 512, lane=lane)
            recorded.free(start + 26, 20, lane=lane)
            recorded.free(start + 27, 21, lane=lane)
    recorded.optimizer(80, 90)
    recorded.span("aten::add_", 82, 84)
    recorded.alloc(83, 40, 512)
    recorded.free(83.5, 40)
    recorded.span("Optimizer.zero_grad#SGD.zero_grad", 92, 94, "annotation")
    recorded.free(93, 30)
    expected = {10: "activations", 11: "activations", 20: "gradients", 21: "temporaries", 30: "gradients"}
    assert owned(recorded.read()) == {**expected, 40: "temporaries"}


def steps_with_output(recorded, kept_for):
    """Each step's forward makes an output that the program keeps for so many steps."""
    for step in range(4):
        start = 100 * step
        recorded.step(step, start, start + 100)
        forward(recorded, start + 5, start + 10)
        recorded.alloc(start + 6, 1_000 + step, 64)
        if step >= kept_for:
            recorded.free(start + 8, 1_000 + step - kept_for)
        recorded.backward("MmBackward0", start + 20, start + 30)
        recorded.alloc(start + 21, 2_000 + step, 64)
        recorded.free(start + 22, 2_000 + step)
        recorded.optimizer(start + 50, start + 60)


def test_an_output_that_stays_until_the_next_step_is_temporary_also_where_the_window_cuts_it_off():
    recorded = Recorded()
    steps_with_output(recorded, kept_for=1)
    whose = owned(recorded.read())
    assert {whose[1_000 + step] for step in range(4)} == {"temporaries"}


def test_what_is_kept_for_longer_is_nobodys():
    recorded = Recorded()
    steps_with_output(recorded, kept_for=9)
    whose = owned(recorded.read())
    assert {whose[1_000 + step] for step in range(4)} == {"unattributed"}


def test_what_is_made_ahead_of_the_model_and_stays_is_a_batch():
    recorded = Recorded()
    for step in range(2):
        start = 100 * step
        recorded.step(step, start, start + 100)
        recorded.span("aten::randn", start + 1, start + 4)
        recorded.alloc(start + 2, 100 + step, 64)
        recorded.alloc(start + 3, 200 + step, 64)
        recorded.free(start + 3.5, 200 + step)
        recorded.span("lostflops.module: model", start + 5, start + 20, "module", module="model")
        forward(recorded, start + 6, start + 9, module="model")
        recorded.alloc(start + 7, 300 + step, 64)
        forward(recorded, start + 22, start + 25, "aten::mse_loss")
        recorded.alloc(start + 23, 400 + step, 64)
        recorded.backward("MseLossBackward0", start + 30, start + 40)
        recorded.free(start + 32, 300 + step)
        recorded.free(start + 33, 400 + step)
        recorded.optimizer(start + 50, start + 60)
        recorded.free(start + 90, 100 + step)
    whose = owned(recorded.read())
    assert {address: whose[address] for address in (100, 200, 300, 400)} == {
        100: "batches",
        200: "temporaries",
        300: "activations",
        400: "activations",
    }


def test_what_the_loader_makes_and_hands_over_is_a_batch():
    recorded = Recorded()
    recorded.step(0, 0, 100)
    recorded.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 9, "annotation")
    recorded.span("aten::stack", 2, 8)
    recorded.alloc(3, 1, 64)
    recorded.alloc(4, 2, 64)
    recorded.free(5, 2)
    forward(recorded, 10, 15)
    recorded.alloc(11, 3, 64)
    recorded.free(12, 3)
    assert owned(recorded.read()) == {1: "batches", 2: "temporaries", 3: "temporaries"}


def test_gathered_parameters_and_gradients_before_they_are_scattered_are_communication():
    recorded = Recorded()
    recorded.step(0, 0, 100)
    recorded.span("FSDP::pre_forward (layers.0)", 1, 5, "annotation")
    recorded.span("fsdp::all_gather_copy_in", 2, 4)
    recorded.alloc(3, 1, 512)
    forward(recorded, 6, 12)
    recorded.span("FSDP::post_forward (layers.0)", 13, 15, "annotation")
    recorded.free(14, 1)
    recorded.backward("MmBackward0", 20, 40)
    recorded.alloc(21, 2, 512)
    recorded.span("FSDP::post_backward_reduce (layers.0)", 30, 38, "annotation")
    recorded.alloc(31, 3, 512)
    recorded.alloc(32, 4, 256)
    recorded.free(33, 2)
    recorded.free(36, 3)
    recorded.hold(50, 4, 256, "gradients", name="layers.0.weight")
    recorded.optimizer(50, 60)
    recorded.free(70, 4)
    assert owned(recorded.read()) == {1: "communication", 2: "communication", 3: "communication", 4: "gradients"}


@pytest.mark.parametrize(("is_seen", "owner"), [(True, "communication"), (False, "gradients")])
def test_a_buffer_that_nobody_was_seen_to_free_is_no_gradient_where_all_gradients_were_seen(is_seen, owner):
    recorded = Recorded()
    recorded.step(0, 0, 100)
    forward(recorded, 6, 12)
    recorded.backward("MmBackward0", 20, 40)
    recorded.span("FSDP::post_backward_reduce (layers.0)", 30, 38, "annotation")
    recorded.alloc(31, 3, 512)
    recorded.alloc(32, 4, 256)
    if is_seen:
        recorded.hold(50, 4, 256, "gradients", name="layers.0.weight")
    recorded.optimizer(50, 60)
    assert owned(recorded.read()) == {3: owner, 4: "gradients"}


def test_the_first_update_leaves_the_optimizers_state_and_the_second_only_uses_it():
    recorded = Recorded()
    for step in range(2):
        start = 100 * step
        recorded.step(step, start, start + 100)
        recorded.backward("MmBackward0", start + 10, start + 20)
        recorded.optimizer(start + 50, start + 60)
        recorded.span("aten::zeros_like", start + 51, start + 55)
        if not step:
            recorded.alloc(start + 52, 1, 64)
        recorded.alloc(start + 53, 10 + step, 64)
        recorded.free(start + 54, 10 + step)
    assert owned(recorded.read()) == {1: "optimizer_state", 10: "temporaries", 11: "temporaries"}


def buckets(recorded, is_view):
    logged = [{"bucket_sizes": "900", "rebuilt_bucket_sizes": "300, 600", "gradient_as_bucket_view": int(is_view)}]
    recorded.job.append({"rank": 0, "attempt": 0, "key": "ddp", "value": json.dumps(logged)})
    recorded.span("aten::add", 0, 100)
    recorded.alloc(10, 1, 512)
    recorded.free(20, 1)


@pytest.mark.parametrize(("is_view", "owner"), [(False, "communication"), (True, "gradients")])
def test_ddps_buckets_are_known_by_their_sizes(is_view, owner):
    recorded = Recorded("cuda", base=4_096)
    buckets(recorded, is_view)
    found = recorded.read()
    assert owned(found) == {-1: owner, 1: "temporaries"}
    assert found.unknown == 4_096 - 512 - 1_024
    on_cpu = Recorded()
    buckets(on_cpu, is_view)
    assert on_cpu.read().base == 900


def test_a_bucket_that_was_seen_as_gradients_is_not_counted_twice():
    recorded = Recorded()
    buckets(recorded, is_view=True)
    recorded.hold(0, 7_000, 600, "gradients", before=True, name="weight")
    recorded.hold(0, 7_000, 600, "gradients", before=True, name="bias")
    assert recorded.read().base == 900


def test_buckets_that_the_allocators_total_has_no_room_for_are_left_out():
    recorded = Recorded("cuda", base=512)
    buckets(recorded, is_view=False)
    found = recorded.read()
    assert (found.base, found.unknown) == (512, 0)
    assert found.by_owner()[0].sum() == 512


def test_what_gloos_threads_allocate_is_communication_and_does_not_end_a_pass():
    recorded = Recorded()
    recorded.step(0, 0, 100)
    forward(recorded, 5, 10)
    recorded.alloc(6, 1, 64)
    recorded.backward("MmBackward0", 20, 30)
    recorded.alloc(21, 2, 64)
    recorded.span("gloo:all_reduce", 22, 28, "host_comm", lane=7)
    recorded.alloc(23, 3, 64, lane=7)
    recorded.free(24, 3, lane=7)
    recorded.free(25, 2)
    recorded.free(26, 1)
    assert owned(recorded.read()) == {1: "activations", 2: "temporaries", 3: "communication"}


def test_a_hook_between_two_nodes_does_not_end_the_pass_and_a_forward_op_does():
    recorded = Recorded()
    recorded.step(0, 0, 100)
    forward(recorded, 5, 10)
    recorded.backward("MmBackward0", 20, 30)
    recorded.alloc(21, 1, 64)
    recorded.span("aten::norm", 32, 34)
    recorded.alloc(33, 2, 64)
    recorded.backward("MmBackward0", 36, 40)
    recorded.free(37, 1)
    recorded.free(38, 2)
    forward(recorded, 50, 55)
    recorded.alloc(51, 3, 64)
    recorded.backward("MmBackward0", 60, 70)
    recorded.free(61, 3)
    found = recorded.read()
    assert owned(found) == {1: "temporaries", 2: "temporaries", 3: "activations"}
    assert found.blocks.phase.tolist() == [1, 1, 0]


def test_what_a_reduction_leaves_for_the_update_is_gradients_unless_its_free_was_lost():
    recorded = Recorded()
    for step in range(2):
        start = 100 * step
        recorded.step(step, start, start + 100)
        recorded.backward("MmBackward0", start + 10, start + 40)
        recorded.span("FSDP::post_backward_reduce (layers.0)", start + 20, start + 30, "annotation")
        recorded.alloc(start + 21, 1, 256)
        recorded.alloc(start + 22, 2, 512)  # the other one is freed by a thread that is not recorded
        recorded.sizes.pop(2)
        recorded.optimizer(start + 50, start + 60)
        recorded.free(start + 70, 1)
    found = recorded.read()
    first = dict(zip(found.blocks.address.tolist()[:2], found.blocks.owner.tolist()[:2], strict=True))
    assert first == {1: CODE[Owner.GRADIENTS], 2: CODE[Owner.COMMUNICATION]}
    assert found.notes[0].startswith("1 blocks were freed without an event")
    assert found.total.tolist() == [256, 768, 512, 768, 768, 512]


def test_a_block_that_a_thread_frees_unseen_ends_as_others_of_its_place_do():
    recorded = Recorded()
    for step in range(3):
        start = 100 * step
        recorded.step(step, start, start + 100)
        recorded.span("gloo:reduce_scatter", start + 10, start + 30, "host_comm", lane=3)
        recorded.alloc(start + 11, 10 + step, 512, lane=3)
        recorded.free(start + 20, 10 + step, lane=3, lost=step == 1)
        forward(recorded, start + 40, start + 50)
        recorded.alloc(start + 41, 1, 64)
        recorded.free(start + 45, 1)
    found = recorded.read()
    assert found.total.tolist() == [512, 0, 64, 0, 512, 64, 0, 512, 0, 64, 0]


def test_without_steps_and_with_most_ops_in_backward_forward_is_told_all_the_same():
    recorded = Recorded("cuda")
    forward(recorded, 5, 10)
    recorded.alloc(6, 1, 512)
    for start in (20, 30, 40):
        recorded.backward("MmBackward0", start, start + 8, lane=4)
    recorded.free(22, 1, lane=4)
    forward(recorded, 55, 58)
    recorded.alloc(56, 2, 512)
    recorded.free(57, 2)
    recorded.backward("MmBackward0", 60, 68, lane=4)
    recorded.alloc(62, 3, 512, lane=4)
    recorded.free(63, 3, lane=4)
    found = recorded.read()
    assert owned(found) == {1: "activations", 2: "temporaries", 3: "temporaries"}
    assert found.blocks.phase.tolist() == [0, 0, 1]
