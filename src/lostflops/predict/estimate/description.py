"""The model to train, the job that trains it, and the file that describes both.

A description is a TOML or JSON file with the fields of `ModelDescription` and `PlannedJob`, all on one level:

    layers = 40
    hidden = 5120
    heads = 40
    kv_heads = 8
    ffn = 17408
    vocabulary = 151936
    sequence = 4096
    dp = 8
    zero = 3
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from lostflops.core.errors import BrokenSource, UsageError

Positive = Annotated[int, Meta(ge=1, le=1 << 40)]
Count = Annotated[int, Meta(ge=0, le=1 << 40)]
Dtype = Literal["bf16", "fp16", "fp32", "fp8"]
Precision = Literal["autocast", "master", "pure"]
Recompute = Literal["none", "selective", "full"]
Attention = Literal["fused", "flex"]
Optimizer = Literal["adamw", "adam", "sgd", "sgd-momentum"]

SIZES: Final = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A transformer: layers of attention and feed-forward that are all alike, between embeddings and a head."""

    name: str = "model"
    layers: Positive
    hidden: Positive
    heads: Positive
    kv_heads: Count = 0
    """0: as many as heads."""
    head_dim: Count = 0
    """0: hidden / heads."""
    ffn: Positive
    """Width of the feed-forward part; of one expert if there are experts."""
    gated: bool = True
    vocabulary: Positive
    tied: bool = False
    """Whether the head multiplies with the embedding's weight."""
    norm: Literal["rms", "layer"] = "rms"
    qkv_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    qk_norm: bool = False
    positions: Count = 0
    """Number of learned positions."""
    token_types: Count = 0
    embedding_norm: bool = False
    final_norm: bool = True
    head: Literal["lm", "mlm", "none"] = "lm"
    """`lm` is one product with the vocabulary; `mlm` also has a dense layer, a norm and a bias, as in BERT."""
    pooler: bool = False
    causal: bool = True
    experts: Count = 0
    experts_per_token: Count = 0

    def __post_init__(self) -> None:
        if not self.head_dim and self.hidden % self.heads:
            raise UsageError(f"hidden {self.hidden} is not a multiple of heads {self.heads}: give head_dim")
        if self.heads % self.keys:
            raise UsageError(f"heads {self.heads} is not a multiple of kv_heads {self.keys}")
        if bool(self.experts) != bool(self.experts_per_token) or self.experts_per_token > self.experts:
            raise UsageError("give both experts and experts_per_token, with experts_per_token not above experts")

    @property
    def keys(self) -> int:
        return self.kv_heads or self.heads

    @property
    def width(self) -> int:
        """Width of one head."""
        return self.head_dim or self.hidden // self.heads


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model is trained: ranks, sequences per step, precision and sharding."""

    sequence: Positive
    microbatch: Positive = 1
    """Sequences that a rank takes at once."""
    batch: Count = 0
    """Sequences of a step on all ranks; 0: one microbatch on each."""
    dtype: Dtype = "bf16"
    """Dtype of products."""
    precision: Precision = "autocast"
    """`autocast`: parameters, gradients and states in fp32 (4 + 4 + 8 bytes a parameter with Adam), as torch.autocast
    and FSDP have them. `master`: parameters and gradients in dtype, a fp32 copy and states in the optimizer
    (2 + 2 + 12), as DeepSpeed and Megatron have them. `pure`: everything in dtype (2 + 2 + 4)."""
    reduce_dtype: Dtype | None = None
    """Dtype in which gradients are sent; None for the dtype in which they are held."""
    dp: Positive = 1
    cp: Positive = 1
    """Ranks that share the tokens of each sequence; they hold the same parameters, as those of dp do."""
    tp: Positive = 1
    pp: Positive = 1
    virtual_stages: Positive = 1
    """Parts of the model on each pipeline stage, which are interleaved with those of other stages."""
    tp_overlap: bool = False
    """Whether sums of tensor parallelism run beside the products that make or take them, a part at a time."""
    zero: Annotated[int, Meta(ge=0, le=3)] = 0
    replicas: Positive = 1
    """ZeRO shards among dp x cp / replicas ranks, and whole replicas are reduced among each other (HSDP)."""
    recompute: Recompute = "none"
    optimizer: Optimizer = "adamw"
    compiled: bool | None = None
    """Whether torch.compile is used; None if not known, which makes ranges wider."""
    attention: Attention = "fused"
    """`fused` is FlashAttention or cuDNN's, `flex` is FlexAttention; neither keeps scores."""
    loss_chunks: Positive = 1
    """Number of parts in which the head and the loss take the tokens of a microbatch."""
    step_seconds: Annotated[float, Meta(ge=0)] = 0
    """Measured step time, from which `lostflops scale` starts; 0 if it was not measured."""

    def __post_init__(self) -> None:
        if self.dp % self.replicas:
            raise UsageError(f"dp {self.dp} is not a multiple of replicas {self.replicas}")
        if self.sequence % self.cp:
            raise UsageError(f"sequence {self.sequence} is not a multiple of cp {self.cp}")
        if self.sequences % (self.dp * self.microbatch):
            raise UsageError(
                f"batch {self.batch} is not a multiple of dp x microbatch = {self.dp} x {self.microbatch}: "
                "every rank takes whole microbatches"
            )
        if self.virtual_stages > 1 and self.pp == 1:
            raise UsageError(f"virtual_stages {self.virtual_stages} needs a pipeline: set pp to 2 or more")
        if self.virtual_stages > 1 and self.microbatches % self.pp:
            raise UsageError(
                f"a batch of {self.batch} gives {self.microbatches} microbatches on each of {self.dp} replicas. With "
                f"virtual stages their number must be a multiple of pp {self.pp}: change batch, dp or pp"
            )

    @property
    def sequences(self) -> int:
        return self.batch or self.dp * self.microbatch

    @property
    def microbatches(self) -> int:
        """Microbatches that a rank takes in a step, one after another."""
        return self.sequences // (self.dp * self.microbatch)

    @property
    def ranks(self) -> int:
        return self.dp * self.cp * self.tp * self.pp

    @property
    def alike(self) -> int:
        """Ranks that have the same parameters, and reduce gradients among each other."""
        return self.dp * self.cp

    @property
    def tokens(self) -> int:
        """Tokens that a rank has at once."""
        return self.microbatch * self.sequence // self.cp

    @property
    def shards(self) -> int:
        """Number of ranks among which ZeRO shards."""
        return self.alike // self.replicas

    @property
    def step_tokens(self) -> int:
        return self.sequences * self.sequence

    @property
    def held_dtype(self) -> Dtype:
        """Dtype of parameters and gradients in memory."""
        return "fp32" if self.precision == "autocast" else "bf16" if self.dtype == "fp8" else self.dtype

    @property
    def is_fused(self) -> bool:
        """Whether norms, activations and sums of gradients are certainly fused: fp8 comes with TransformerEngine's
        modules, or with torch.compile."""
        return self.dtype == "fp8"

    @property
    def product_size(self) -> int:
        """Bytes of an element of an activation: fp8 is only for products."""
        return max(2, SIZES[self.dtype])


_MODEL_FIELDS: Final = frozenset(ModelDescription.__struct_fields__)
Kind = TypeVar("Kind", ModelDescription, PlannedJob)


def read_description(path: Path) -> tuple[ModelDescription, dict[str, Any]]:
    """Read the model in a file, and what the file says about the job."""
    fields = read_table(path)
    model = {name: value for name, value in fields.items() if name in _MODEL_FIELDS}
    rest = {name: value for name, value in fields.items() if name not in _MODEL_FIELDS}
    if unknown := sorted(set(rest) - set(PlannedJob.__struct_fields__)):
        known = ", ".join((*ModelDescription.__struct_fields__, *PlannedJob.__struct_fields__))
        raise UsageError(f"{path} has unknown fields: {', '.join(unknown)}; known fields: {known}")
    return convert(model, ModelDescription, str(path)), rest


def make_job(fields: dict[str, Any], where: str) -> PlannedJob:
    if "sequence" not in fields:
        raise UsageError("the sequence length is unknown: give --seq, or `sequence` in the description")
    return convert(fields, PlannedJob, where)


def read_table(path: Path) -> dict[str, Any]:
    """Read a TOML or JSON file of one object."""
    try:
        content = path.read_bytes()
        found = tomllib.loads(content.decode()) if path.suffix == ".toml" else msgspec.json.decode(content)
    except (tomllib.TOMLDecodeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenSource(f"{path} is neither TOML (named .toml) nor JSON: {error}") from error
    if not isinstance(found, dict):
        raise BrokenSource(f"{path} does not contain an object with fields")
    return found


def convert(fields: dict[str, Any], kind: type[Kind], where: str) -> Kind:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {error}") from error
