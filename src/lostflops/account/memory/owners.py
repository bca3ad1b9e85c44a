"""Owners of memory: every byte has one of these."""

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
    Owner.PARAMETERS: "the model's parameters, frozen ones included",
    Owner.GRADIENTS: "stored in .grad by backward passes",
    Owner.OPTIMIZER: "state that the optimizer keeps from step to step, such as moments",
    Owner.BUFFERS: "tensors of modules that no optimizer updates, such as running means",
    Owner.ACTIVATIONS: "tensors that the forward pass, or its recomputation, keeps for the backward pass",
    Owner.TEMPORARIES: "tensors that live within a pass or an update, or until the next one, such as outputs",
    Owner.COMMUNICATION: "DDP's buckets; FSDP's gathered parameters, and its gradients before reduce-scatter",
    Owner.BATCHES: "input from the data loader",
    Owner.UNATTRIBUTED: "memory whose owner was not recorded",
}
