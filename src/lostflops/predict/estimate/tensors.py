"""Tensors of a model: their shapes, their place in it, and the part that one rank holds.

Tensor parallelism shards as Megatron and torch's plans do: queries, keys, values and the projections into the
feed-forward part by rows of the weight, the projections back by columns, the vocabulary by rows; norms and whatever is
added after a reduction are whole on every rank. Pipeline stages have whole layers, with embeddings on the first and the
head on the last. ZeRO shards every tensor by rows, as FSDP does: with r rows on n ranks each has ceil(r / n), and the
last ones have the rest. Experts are sharded by expert if there are at least n.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from lostflops.core.errors import UsageError
from lostflops.predict.estimate.description import ModelDescription, PlannedJob

Place = Literal["embedding", "layer", "head"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A parameter of a model."""

    name: str
    shape: tuple[int, ...]
    """Shape of the tensor, of one expert if there are experts."""
    place: Place
    split: int | None = None
    """Dimension that tensor parallelism shards, None if it is whole on every rank."""
    product: bool = False
    """Whether activations are multiplied with it."""
    experts: int = 1

    @property
    def elements(self) -> int:
        return self.experts * prod(self.shape)


def tensors(model: ModelDescription) -> tuple[Tensor, ...]:
    """Return all tensors of a model; those of one layer represent every layer.

    >>> sizes = {"layers": 2, "hidden": 8, "heads": 2, "ffn": 32, "vocabulary": 100}
    >>> gpt = ModelDescription(**sizes, gated=False, tied=True, norm="layer")
    >>> sum(tensor.elements * (gpt.layers if tensor.place == "layer" else 1) for tensor in tensors(gpt))
    2416
    """
    return (*_embedding(model), *_attention(model), *_feed_forward(model), *_head(model))


def _embedding(model: ModelDescription) -> list[Tensor]:
    found = [Tensor(name="embedding", shape=(model.vocabulary, model.hidden), place="embedding", split=0)]
    if model.positions:
        found.append(Tensor(name="positions", shape=(model.positions, model.hidden), place="embedding"))
    if model.token_types:
        found.append(Tensor(name="token types", shape=(model.token_types, model.hidden), place="embedding"))
    return found + (_norm(model, "embedding norm", model.hidden, "embedding") if model.embedding_norm else [])


def _attention(model: ModelDescription) -> list[Tensor]:
    queries, keys = model.heads * model.width, model.keys * model.width
    found = _norm(model, "attention norm", model.hidden, "layer")
    for name, rows in (("query", queries), ("key", keys), ("value", keys)):
        found += _linear(name, rows, model.hidden, model.qkv_bias, split=0)
    if model.qk_norm:
        found += [*_norm(model, "query norm", model.width, "layer"), *_norm(model, "key norm", model.width, "layer")]
    return found + _linear("output", model.hidden, queries, model.output_bias, split=1)


def _feed_forward(model: ModelDescription) -> list[Tensor]:
    experts = max(1, model.experts)
    found = _norm(model, "feed-forward norm", model.hidden, "layer")
    if model.experts:
        found += _linear("router", model.experts, model.hidden, False, split=None)
    for name in ("gate", "up") if model.gated else ("up",):
        found += _linear(name, model.ffn, model.hidden, model.ffn_bias, split=0, experts=experts)
    return found + _linear("down", model.hidden, model.ffn, model.ffn_bias, split=1, experts=experts)


def _head(model: ModelDescription) -> list[Tensor]:
    found = _norm(model, "final norm", model.hidden, "head") if model.final_norm else []
    if model.pooler:
        found += _linear("pooler", model.hidden, model.hidden, True, split=None, place="head")
    if model.head == "mlm":
        found += _linear("transform", model.hidden, model.hidden, True, split=None, place="head")
        found += [
            *_norm(model, "transform norm", model.hidden, "head"),
            Tensor(name="bias", shape=(model.vocabulary,), place="head", split=0),
        ]
    if model.head != "none" and not model.tied:
        found += _linear("head", model.vocabulary, model.hidden, False, split=0, place="head")
    return found


def _linear(
    name: str, rows: int, columns: int, bias: bool, *, split: int | None, experts: int = 1, place: Place = "layer"
) -> list[Tensor]:
    found = [Tensor(name=name, shape=(rows, columns), place=place, split=split, product=True, experts=experts)]
    # What comes out of a product split by columns is summed over ranks first: its bias is whole everywhere.
    return found + (
        [Tensor(name=f"{name} bias", shape=(rows,), place=place, split=0 if split == 0 else None, experts=experts)]
        if bias
        else []
    )


def _norm(model: ModelDescription, name: str, size: int, place: Place) -> list[Tensor]:
    found = [Tensor(name=name, shape=(size,), place=place)]
    return found + ([Tensor(name=f"{name} bias", shape=(size,), place=place)] if model.norm == "layer" else [])


def check_layout(model: ModelDescription, job: PlannedJob) -> None:
    """Raise `UsageError` for what cannot be sharded evenly, as Megatron and torch do."""
    for name, size in (("heads", model.heads), ("kv_heads", model.keys), ("ffn", model.ffn)):
        if size % job.tp:
            raise UsageError(f"{name} {size} is not a multiple of tp {job.tp}: give another tp")
    if model.positions and job.sequence > model.positions:
        raise UsageError(
            f"a sequence of {job.sequence} is longer than the {model.positions} learned positions of the model"
        )
    if job.pp * job.virtual_stages > model.layers:
        stages = "pp" if job.virtual_stages == 1 else "pp x virtual_stages"
        raise UsageError(f"{stages} {job.pp * job.virtual_stages} is more than the number of layers ({model.layers})")


def stage_layers(model: ModelDescription, job: PlannedJob) -> tuple[int, ...]:
    """Return the layers of each pipeline stage. If only layers + 2 divide, the embedding and the head count as layers
    of the first and the last stage; if those do not divide either, the first stages have one more.

    >>> job = PlannedJob(sequence=1, pp=4)
    >>> [
    ...     stage_layers(ModelDescription(layers=layers, hidden=8, heads=2, ffn=32, vocabulary=100), job)
    ...     for layers in (12, 10, 9)
    ... ]
    [(3, 3, 3, 3), (2, 3, 3, 2), (3, 2, 2, 2)]
    """
    parts = job.pp * job.virtual_stages
    if model.layers % parts and not (model.layers + 2) % parts:
        each = (model.layers + 2) // job.pp
        return tuple(each - (stage == 0) - (stage == job.pp - 1) for stage in range(job.pp))
    each, more = divmod(model.layers, job.pp)
    return tuple(each + (stage < more) for stage in range(job.pp))


def share(size: int, parts: int, part: int) -> int:
    """Return how many of `size` rows one part has, as torch.chunk splits them.

    >>> [share(10, 4, part) for part in range(4)], [share(5, 4, part) for part in range(4)]
    ([3, 3, 3, 1], [2, 2, 1, 0])
    """
    each = -(-size // parts)
    return min(each, max(0, size - part * each))


@dataclass(frozen=True, slots=True)
class TensorShard:
    """A tensor as one rank of a stage has it before ZeRO."""

    tensor: Tensor
    shape: tuple[int, ...]
    """Shape on that rank."""
    times: int
    """How often the rank has it."""

    @property
    def elements(self) -> int:
        return self.count_shard_elements(1)

    def count_shard_elements(self, parts: int, part: int = 0) -> int:
        """Return the elements of one of `parts` parts, split by rows; by experts if there are enough of them, else by
        the rows of each, as torchtitan does so that no rank is left without."""
        experts = self.tensor.experts
        first, *rest = (experts, *self.shape) if 1 < parts <= experts else (self.shape[0], experts, *self.shape[1:])
        return self.times * share(first, parts, part) * prod(rest)


def list_stage_shards(
    model: ModelDescription, job: PlannedJob, stage: int, tp_rank: int = 0
) -> tuple[TensorShard, ...]:
    """Return the tensors that one rank of a stage has. A tied head on another stage than the embedding is a copy of
    it."""
    layers = stage_layers(model, job)[stage]
    found = []
    for tensor in tensors(model):
        is_last = stage == job.pp - 1
        copied = tensor.name == "embedding" and model.tied and is_last and model.head != "none"
        here = {"embedding": stage == 0 or copied, "layer": True, "head": is_last}[tensor.place]
        if here:
            times = layers if tensor.place == "layer" else 1
            found.append(TensorShard(tensor, _shard(tensor, job.tp, tp_rank), times))
    return tuple(found)


def _shard(tensor: Tensor, tp: int, tp_rank: int) -> tuple[int, ...]:
    return tuple(
        share(size, tp, tp_rank) if dimension == tensor.split else size for dimension, size in enumerate(tensor.shape)
    )
