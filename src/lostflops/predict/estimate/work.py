"""Work of a model: products, attention, and the bytes that all other ops move through memory.

Model FLOPs of a step are those of products with weights, forward and twice that backward (6 for each weight and token),
and of attention over all pairs of tokens, not halved if it is causal (12 x layers x heads x width of a head x sequence
for each token). Embeddings are looked up, not multiplied; norms and activations count nothing. Recomputation is not
model work: only hardware FLOPs include it.

The bytes moved depend on fusion. The least is norms, rotation, activation and residuals as one kernel each, as
compilers write them; separate ops with casts move about 2.5 times that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lostflops.predict.estimate.description import SIZES, ModelDescription, PlannedJob
from lostflops.predict.estimate.ranges import NOTHING, Range, exactly
from lostflops.predict.estimate.tensors import Tensor, TensorShard, list_stage_shards, stage_layers, tensors

FUSED: Final = {True: Range(1, 1.5), False: Range(1.5, 2.5), None: Range(1, 2.5)}
"""Bytes moved, relative to ops that are fused as far as possible, by whether the model is compiled."""
LOGIT_PASSES: Final = Range(3, 16)
"""How many times logits are read or written: by a fused loss, and by one that casts to fp32 and keeps the softmax."""
KERNELS: Final = 32
"""Kernels of a layer forward, if nothing is fused."""
LAUNCHED: Final = {True: Range(0, 3 / 8), False: Range(1 / 2, 1), None: Range(0, 1)}
"""Part of the kernels of a pass that are launched one by one, by whether the model is compiled. Eager: half if norms,
rotation and activation are one op each. Compiled: products, attention and about four fused kernels of a layer, or none
if CUDA graphs replay them."""
TILE: Final = 128
"""Tokens of a tile in fused attention, on current devices."""
FLASH_BACKWARD: Final = 2.5
"""FLOPs of attention backward over forward: without kept scores they are multiplied again, so that there are five
products backward for two forward."""


@dataclass(frozen=True, slots=True)
class Product:
    """Matrices of m x k and k x n multiplied, or FLOPs whose shapes are not known."""

    m: int = 0
    n: int = 0
    k: int = 0
    count: float = 1
    """Number of such products."""
    unshaped: float = 0
    """FLOPs if the shapes are not known, else 0."""
    is_wide: bool = False
    """Whether it stays in bf16 where the job's products are in fp8."""

    @property
    def flops(self) -> float:
        return self.unshaped or 2.0 * self.m * self.n * self.k * self.count

    @property
    def elements(self) -> float:
        """Elements read and written, each once."""
        return self.count * (self.m * self.k + self.k * self.n + self.m * self.n)


@dataclass(frozen=True, slots=True)
class ModelWork:
    """Work of one microbatch forward on one rank of one stage."""

    products: tuple[Product, ...]
    attention: float
    """FLOPs that an attention kernel executes."""
    moved: Range
    """Bytes outside of products and attention."""
    accumulated: Range
    """Bytes moved backward for gradients that are added up."""
    launched: Range
    """Kernels that a host launches one by one."""


def model_flops(model: ModelDescription, job: PlannedJob) -> int:
    """Return the FLOPs of one step on all ranks, whatever the degrees of parallelism."""
    return 3 * (product_flops(model, job) + attention_flops(model, job))


def product_flops(model: ModelDescription, job: PlannedJob) -> int:
    """Return the FLOPs of products with weights, one step forward."""
    per_token = sum(
        tensor.elements // tensor.experts * _times(model, tensor) * _layers(model, tensor)
        for tensor in tensors(model)
        if tensor.product and tensor.name != "pooler"
    )
    if model.tied and model.head != "none":
        per_token += model.vocabulary * model.hidden
    pooled = 2 * model.hidden**2 * job.sequences if model.pooler else 0
    return 2 * per_token * job.step_tokens + pooled


def attention_flops(model: ModelDescription, job: PlannedJob) -> int:
    """Return the FLOPs of scores and their product with values, all pairs, one step forward."""
    return 4 * model.layers * model.heads * model.width * job.sequence * job.step_tokens


def recomputed_flops(model: ModelDescription, job: PlannedJob) -> Range:
    """Return the FLOPs that recomputation adds to a step: none, a forward pass of all layers, or anything between."""
    layers = sum(
        2 * tensor.elements // tensor.experts * _times(model, tensor) * model.layers * job.step_tokens
        for tensor in tensors(model)
        if tensor.product and tensor.place == "layer"
    )
    whole = layers + attention_flops(model, job)
    return {"none": NOTHING, "selective": Range(0, whole), "full": exactly(whole)}[job.recompute]


def _times(model: ModelDescription, tensor: Tensor) -> int:
    """Return how many of the experts see a token."""
    return model.experts_per_token if tensor.experts > 1 else 1


def _layers(model: ModelDescription, tensor: Tensor) -> int:
    return model.layers if tensor.place == "layer" else 1


def work(model: ModelDescription, job: PlannedJob, stage: int) -> ModelWork:
    mine = list_stage_shards(model, job, stage)
    layers = stage_layers(model, job)[stage]
    tokens = job.tokens
    pairs = job.microbatch * count_attended_pairs(job.sequence, model.causal) / job.cp
    fusion = FUSED[True if job.is_fused else job.compiled]
    moved = fusion * (layers * tokens * _layer_elements(model, job) * job.product_size)
    if stage == job.pp - 1 and model.head != "none":
        moved += LOGIT_PASSES * (tokens * (model.vocabulary / job.tp) * job.product_size)
    return ModelWork(
        products=tuple(product for part in mine for product in _products(model, job, stage, part)),
        attention=4.0 * layers * (model.heads // job.tp) * model.width * pairs,
        moved=moved,
        accumulated=NOTHING if job.is_fused else exactly(_count_accumulated_bytes(model, job, stage, mine)),
        launched=LAUNCHED[job.compiled] * (KERNELS * layers),
    )


def count_attended_pairs(sequence: int, causal: bool) -> int:
    """Count the pairs of tokens that a fused kernel computes: whole tiles, and none above the diagonal if it is causal.

    >>> tuple(count_attended_pairs(tokens, causal=True) for tokens in (128, 100, 1024))
    (16384, 16384, 589824)
    """
    tiles = -(-sequence // TILE)
    return TILE**2 * (tiles * (tiles + 1) // 2 if causal else tiles**2)


def _products(model: ModelDescription, job: PlannedJob, stage: int, part: TensorShard) -> list[Product]:
    tensor, tokens = part.tensor, job.tokens
    is_tied_head = tensor.name == "embedding" and model.tied and model.head != "none" and stage == job.pp - 1
    if not tensor.product and not is_tied_head:
        return []
    rows, columns = part.shape
    if tensor.name == "pooler":
        return [Product(job.microbatch, rows, columns)]
    if tensor.name == "head" or is_tied_head:
        chunk = -(-tokens // job.loss_chunks)
        return [Product(chunk, rows, columns, tokens / chunk, is_wide=job.dtype == "fp8")]
    if tensor.experts > 1:
        routed = tokens * model.experts_per_token
        each = max(1, routed // tensor.experts)
        return [Product(each, rows, columns, part.times * routed / each)]
    return [Product(tokens, rows, columns, part.times)]


def _layer_elements(model: ModelDescription, job: PlannedJob) -> float:
    """Return the elements that the ops between products read and write for a token, each fused as far as possible: norm
    (2 h), rotation (queries and keys in and out), residual with norm (4 h), activation, residual (3 h). Tensor-parallel
    ranks share the tokens of norms and residuals (sequence parallelism)."""
    rotated = 2 * (model.heads + model.keys) * model.width
    activated = (3 if model.gated else 2) * model.ffn * max(1, model.experts_per_token)
    return (9 * model.hidden + rotated + activated) / job.tp


def _count_accumulated_bytes(
    model: ModelDescription, job: PlannedJob, stage: int, mine: tuple[TensorShard, ...]
) -> float:
    """Return the bytes moved to add up gradients: those of a microbatch are added to those before it, and those of the
    head to those of the chunk before, with two reads and a write."""
    size = SIZES[job.held_dtype]
    head = sum(part.elements for part in mine if part.tensor.name == ("embedding" if model.tied else "head"))
    chunks = head * (job.loss_chunks - 1) if stage == job.pp - 1 and model.head != "none" else 0
    whole = sum(part.elements for part in mine) if job.microbatches > 1 else 0
    return 3.0 * size * (whole + chunks)
