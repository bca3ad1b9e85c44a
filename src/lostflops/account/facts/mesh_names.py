"""Kinds of parallelism that the description of a process group names.

Megatron-LM writes `TENSOR_MODEL_PARALLEL_GROUP`, DeviceMesh `mesh_tp`, torchtitan `dp_shard`, `dp_cp`, `fsdp`,
DeepSpeed `mesh_sequence_parallel`.
"""

import re
from collections.abc import Sequence
from typing import Final

KINDS: Final = ("tp", "cp", "ep", "dp", "dp_shard", "dp_replicate", "pp")

EXPERT_KINDS: Final = frozenset({"etp", "ep", "edp"})
"""Dimensions of expert layers alone: their tensor parallel ranks, the experts, and replicas of an expert."""

_WORDS: Final = {
    "tensor": ("tp",),
    "tp": ("tp",),
    "context": ("cp",),
    "cp": ("cp",),
    "ulysses": ("cp",),
    "sequence": ("cp",),
    "sp": ("cp",),
    "ring": ("cp",),
    "expert": ("ep",),
    "ep": ("ep",),
    "etp": ("etp",),
    "edp": ("edp",),
    "efsdp": ("edp",),
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
_OF_EXPERTS: Final = {"model": "ep", "tensor": "etp", "data": "edp", "pipeline": "pp"}
_FILLING: Final = {"mesh", "device", "group", "groups", "parallel", "model", "with", "and", "gloo", "nccl", "pg"}


def kinds_of(description: str | None) -> frozenset[str]:
    """Return the kinds of parallelism that the group spans.

    Empty if the description does not say, or names a group that is not a dimension (embeddings, the whole model).

    >>> sorted(kinds_of("TENSOR_MODEL_PARALLEL_GROUP")), sorted(kinds_of("mesh_dp_shard_cp"))
    (['tp'], ['cp', 'dp_shard'])
    >>> sorted(kinds_of("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP")), sorted(kinds_of("EXPERT_DATA_PARALLEL_GROUP"))
    (['ep', 'etp'], ['edp'])
    >>> kinds_of("EMBEDDING_GROUP") | kinds_of("MODEL_PARALLEL_GROUP")
    frozenset()
    """
    words = [word for word in re.split(r"[^a-z0-9]+", (description or "").lower()) if word]
    if words[:1] == ["expert"]:
        return _expert_kinds(words[1:])
    words = [word for word in words if word not in _FILLING]
    if words == ["dp", "shard", "mod", "ep"]:
        return frozenset({"edp"})
    if any(word not in _WORDS for word in words):
        return frozenset()
    kinds = {kind for word in words for kind in _WORDS[word]}
    if kinds & EXPERT_KINDS and kinds - EXPERT_KINDS:
        return frozenset()
    if kinds & {"dp_shard", "dp_replicate"}:
        kinds.discard("dp")
    return frozenset(kinds)


def _expert_kinds(words: Sequence[str]) -> frozenset[str]:
    """Return the kinds in the words after `expert`, as Megatron-Core writes them; `model` means experts there."""
    named = {_OF_EXPERTS.get(word, "" if word in _FILLING else "?") for word in words}
    if "?" in named:
        return frozenset()
    return frozenset(named - {""}) or frozenset({"ep"})
