"""Kinds of parallelism that the description of a process group names.

Megatron-LM writes `TENSOR_MODEL_PARALLEL_GROUP`, DeviceMesh `mesh_tp`, torchtitan `dp_shard`, `dp_cp`, `fsdp`.
"""

import re
from typing import Final

KINDS: Final = ("tp", "cp", "ep", "dp", "dp_shard", "dp_replicate", "pp")

_WORDS: Final = {
    "tensor": ("tp",),
    "tp": ("tp",),
    "context": ("cp",),
    "cp": ("cp",),
    "ulysses": ("cp",),
    "expert": ("ep",),
    "ep": ("ep",),
    "data": ("dp",),
    "dp": ("dp",),
    "ddp": ("dp",),
    "batch": ("dp",),
    "loss": ("dp", "cp"),
    "fsdp": ("dp_shard", "cp"),
    "shard": ("dp_shard",),
    "replicate": ("dp_replicate",),
    "pipeline": ("pp",),
    "pp": ("pp",),
}
_FILLING: Final = {"mesh", "device", "group", "groups", "parallel", "model", "with", "and", "gloo", "nccl", "pg", ""}


def kinds_of(description: str | None) -> frozenset[str]:
    """Return the kinds of parallelism that the group spans.

    Empty if the description does not say, or names a group that is not a dimension (embeddings, the whole model, the
    experts' own tensor and data groups).

    >>> sorted(kinds_of("TENSOR_MODEL_PARALLEL_GROUP")), sorted(kinds_of("mesh_dp_shard_cp"))
    (['tp'], ['cp', 'dp_shard'])
    >>> kinds_of("EMBEDDING_GROUP") | kinds_of("MODEL_PARALLEL_GROUP") | kinds_of("EXPERT_DATA_PARALLEL_GROUP")
    frozenset()
    """
    words = [word for word in re.split(r"[^a-z0-9]+", (description or "").lower()) if word not in _FILLING]
    if any(word not in _WORDS for word in words):
        return frozenset()
    kinds = {kind for word in words for kind in _WORDS[word]}
    if "ep" in kinds and len(kinds) > 1:
        return frozenset()
    if kinds & {"dp_shard", "dp_replicate"}:
        kinds.discard("dp")
    return frozenset(kinds)
