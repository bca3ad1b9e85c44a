"""What is said of a job that memory ran out of, for last states that were written by hand."""

import json
from typing import Any

import pytest

from lostflops.account.memory.out_of_memory import explain_out_of_memory, out_of_memory, ran_out
from memory_run import MemoryRun

GIB = 2**30
ON_DEVICE: dict[str, Any] = {
    "error": "OutOfMemoryError",
    "message": "CUDA out of memory. Tried to allocate 2.00 GiB",
    "asked": 2 * GIB,
    "device": "cuda:0",
    "capacity": 80 * GIB,
    "step": 41,
    "phase": "backward",
    "module": None,
    "line": "train.py:31",
    "owners": {"parameters": 10 * GIB, "gradients": 10 * GIB, "optimizer_state": 20 * GIB, "others": GIB},
    "shapes": [{"dtype": "float32", "shape": [4, 9], "bytes": GIB, "count": 3}],
    "allocated": 77 * GIB,
    "reserved": 78 * GIB,
}
ON_HOST: dict[str, Any] = {
    "asked": 8 * GIB,
    "device": "cpu",
    "step": 0,
    "phase": "forward",
    "owners": {"parameters": GIB, "others": 3 * GIB},
    "shapes": [{"dtype": "float32", "shape": [4, 9], "bytes": GIB, "count": 3}],
    "process": 6 * GIB,
    "host": 16 * GIB,
}


def run_of(*states: tuple[int, int, dict[str, Any]]) -> Any:
    rows = [{"rank": r, "attempt": a, "key": "out_of_memory", "value": json.dumps(v)} for r, a, v in states]
    return MemoryRun(job=[{"rank": 0, "attempt": 0, "key": "torch", "value": '"2.13"'}, *rows])


def said(**more: Any) -> str:
    return explain_out_of_memory(*ran_out(run_of((0, 0, {**ON_DEVICE, **more}))))


def test_a_job_that_did_not_run_out_is_not_explained() -> None:
    assert out_of_memory(run_of()) is None


def test_what_python_does_not_see_is_the_rest_of_what_was_given_out() -> None:
    (found,) = ran_out(run_of((0, 0, ON_DEVICE)))
    assert dict(found.held)["unseen"] == 36 * GIB
    assert sum(held for _, held in found.held) == found.total == 77 * GIB
    assert explain_out_of_memory(found) == (
        "Rank 0 ran out of memory: it asked for 2.15 GB on cuda:0 in step 41, backward, at train.py:31. 82.7 GB of "
        "85.9 GB were already allocated. Most of it: memory that Python does not see (activations for backward, "
        "temporaries, buckets), 38.7 GB (46.8%). To fix it: use a smaller batch and accumulate gradients over more "
        "batches, or use torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) for blocks of the model."
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"allocated": 41 * GIB}, "ZeroRedundancyOptimizer"),
        ({"allocated": 41 * GIB, "owners": {"parameters": 41 * GIB}}, "fully_shard"),
        ({"unused_then": 3 * GIB}, "expandable_segments:True, because 3.22 GB were free"),
        ({"reserved": 80 * GIB}, "expandable_segments"),
        ({"asked": 90 * GIB}, "check the shapes at train.py:31, because the device has only 85.9 GB"),
    ],
)
def test_what_would_help(more: dict[str, Any], expected: str) -> None:
    assert expected in said(**more)


def test_a_process_on_a_host() -> None:
    text = explain_out_of_memory(*ran_out(run_of((3, 0, ON_HOST))))
    assert "Rank 3 ran out of memory: it asked for 8.59 GB on cpu in step 0, forward. The process already used" in text
    assert "already used 6.44 GB, 4.29 GB of it tensors, the host has 17.2 GB." in text
    assert "other tensors, 3.22 GB (75.0%), mostly 3 of float32 and shape [4, 9]." in text


def test_ranks_of_the_last_attempt_that_ran_out() -> None:
    found = out_of_memory(run_of((0, 0, ON_HOST), (1, 2, ON_DEVICE), (2, 2, ON_DEVICE)))
    assert found is not None
    says, section = found
    assert says.endswith("1 other rank ran out of memory too.")
    told = section.to_json()
    assert (told["rank"], told["ranks"], told["attempt"]) == (1, [1, 2], 2)
    assert sum(row["bytes"] for row in told["owners"]) == told["total"]


def test_a_state_of_which_little_is_known() -> None:
    text = explain_out_of_memory(*ran_out(run_of((0, 0, {"error": "MemoryError", "step": 2}))))
    assert text.startswith("Rank 0 ran out of memory: it asked for memory in step 2, outside all passes.")
