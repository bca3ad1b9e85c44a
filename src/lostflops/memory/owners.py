"""Who a byte of memory belongs to."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Owner(StrEnum):
    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer_state"
    BUFFERS = "buffers"
    ACTIVATIONS = "activations"
    TEMPORARIES = "temporaries"
    COMMUNICATION = "communication"
    BATCHES = "batches"
    UNATTRIBUTED = "unattributed"


OWNERS: Final = tuple(Owner)
CODE: Final = {owner: code for code, owner in enumerate(OWNERS)}
"""Place of each owner in columns."""

ABOUT: Final = {
    Owner.PARAMETERS: "what the optimizer updates, and frozen parameters",
    Owner.GRADIENTS: "what backward passes leave in .grad",
    Owner.OPTIMIZER: "what the optimizer keeps from step to step, such as moments",
    Owner.BUFFERS: "tensors of modules that no optimizer updates, such as running means",
    Owner.ACTIVATIONS: "what the forward pass, or its recomputation, keeps for the backward pass",
    Owner.TEMPORARIES: "what comes and goes within a pass or an update, or is kept until the next, such as outputs",
    Owner.COMMUNICATION: "buckets of DDP, gathered parameters and gradients before they are scattered, of FSDP",
    Owner.BATCHES: "what the loader handed over",
    Owner.UNATTRIBUTED: "nothing recorded tells whose it is",
}
