"""Marks of schedulers, letter by letter as servers write them, and names of phases."""

import pytest

from lostflops.account.facts.job_phases import KNOWN_PHASES, ServedBatch, name_phases, parse_mark


@pytest.mark.parametrize(
    ("mark", "batch"),
    [
        ("step[EXTEND bs=4 toks=16384]", ("prefill", 4, 16384)),
        ("step[DECODE bs=64]", ("decode", 64, 64)),
        ("step[TARGET_VERIFY bs=8]", ("decode", 8, None)),
        ("step[MIXED bs=9 toks=520]", ("mixed", 9, 520)),
        ("step[IDLE bs=0]", ("idle", 0, None)),
        ("step[DRAFT_EXTEND bs=8]", ("draft_extend", 8, None)),
        ("execute_context_1(888)_generation_0(0)", ("prefill", 1, 888)),
        ("execute_context_0(0)_generation_7(7)", ("decode", 7, 7)),
        ("execute_context_2(100)_generation_3(12)", ("mixed", 5, 112)),
        ("execute_context_0(0)_generation_0(0)", ("idle", 0, 0)),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", ("decode", 32, 32)),
        ("execute_900_context_1(sq868sk868sqsq1)_generation_32(sq32sk55086sqsq32)", ("mixed", 33, 900)),
        ("prefill[bs=2 tok=16384]", ("prefill", 2, 16384)),
        ("decode[bs=2 tok=2]", ("decode", 2, 2)),
        ("[Executor] _forward_step 12: 0 ctx reqs, 8 gen reqs", ("decode", 8, 8)),
        ("[Executor] _forward_step 12: 2 ctx reqs, 8 gen reqs", ("mixed", 10, None)),
        ("[Executor] _forward_step 12: 2 ctx reqs, 700 ctx tokens, 0 gen reqs", ("prefill", 2, 700)),
        ("[Executor] _forward_step: 1 ctx reqs, 0 gen reqs", ("prefill", 1, None)),
        ("[Executor] _forward_step 12", ("unknown", None, None)),
    ],
)
def test_a_mark_has_the_kind_the_requests_and_the_tokens_of_its_batch(mark, batch):
    assert parse_mark(mark) == ServedBatch(*batch)


@pytest.mark.parametrize("name", ["step", "stepping", "execute_model", "decode", "Step[DECODE bs=1]", "step[decode]"])
def test_other_names_are_no_marks(name):
    assert parse_mark(name) is None


def test_a_known_name_alone_is_no_phase():
    assert name_phases(["train", "loss"]) == {}
    assert name_phases(["train", "phase:eval"]) == {"phase:eval": "eval"}
    assert name_phases(["train", "rollout", "loss"]) == {"train": "train", "rollout": "rollout"}


def test_names_are_matched_as_a_whole():
    assert name_phases(["reward_model", "generate answers", "Train", "ref "]) == {}
    assert all(reason for reason in KNOWN_PHASES.values())


def test_no_program_can_name_a_phase_as_the_rest_is_named():
    assert name_phases(["phase:no phase", "phase: ", "phase: warm up"]) == {"phase: warm up": "warm up"}
