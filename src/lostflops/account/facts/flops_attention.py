"""FLOPs of attention: the products Q·Kᵀ and P·V over the whole score matrix, and their gradients.

Fused kernels keep no scores, so their backward pass multiplies Q·Kᵀ a second time: this counts as `recompute`. If the
lengths of sequences are in a tensor, or keys are in a paged cache, the record does not show what was multiplied. A
sliding window counts as a band of its width, cut neither at the ends of the sequence nor by causality.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Final, TypeAlias

from lostflops.account.facts.op_arguments import Arguments, CallWork, Formula, Shape, UnknownArguments, formulas

_Layout: TypeAlias = Callable[[Arguments, str], Shape]

_QKV: Final = ("q", "k", "v")
_UNTOLD: Final = ("ends_q", "ends_k", "used_q", "used_k", "new_k", "q_v", "pages")


def _heads_first(call: Arguments, name: str) -> Shape:
    """Return `[..., heads, length, width]`, the layout of `scaled_dot_product_attention`."""
    return call.shape(name)


def _length_first(call: Arguments, name: str) -> Shape:
    """Return the shape with heads first from `[batch, length, heads, width]`, the layout of the kernels."""
    batch, length, heads, width = call.shape(name, 4)
    return batch, heads, length, width


def _products(call: Arguments, layout: _Layout) -> tuple[int, int, Shape]:
    """Return FLOPs of Q·Kᵀ, FLOPs of P·V, and the shape of the result with its heads first."""
    q, k, v = (layout(call, name) for name in _QKV)
    if not len(q) == len(k) == len(v) >= 2 or q[-1] != k[-1] or k[:-1] != v[:-1]:
        raise UnknownArguments
    if any(call.has(name) for name in _UNTOLD) or not _share_heads(q[:-2], k[:-2]):
        raise UnknownArguments
    scores = prod(q[:-1]) * min(k[-2], _window(call, k[-2]))
    return 2 * scores * q[-1], 2 * scores * v[-1], (*q[:-1], v[-1])


def _share_heads(q: Shape, k: Shape) -> bool:
    """Return whether Q's heads are a multiple of K's; with grouped queries several share one, and Q's set the work."""
    return all(theirs and not ours % theirs for ours, theirs in zip(q, k, strict=True))


def _window(call: Arguments, length: int) -> int:
    """Return the most keys that a query sees: all if the op has no window or none was set."""
    if "left" not in call.places:
        return call.integer("window") or length
    if call.integer("chunk"):
        raise UnknownArguments
    left, right = call.integer("left"), call.integer("right")
    if left is None or left < 0:
        return length
    if call.flag("causal"):
        return left + 1
    return length if right is None or right < 0 else left + right + 1


def _forward(layout: _Layout) -> Callable[[Arguments], CallWork]:
    def count(call: Arguments) -> CallWork:
        scores, values, made = _products(call, layout)
        return call.work(scores + values, _QKV, [made])

    return count


def _backward(layout: _Layout) -> Callable[[Arguments], CallWork]:
    """Return a formula that counts two gradients for each product."""

    def count(call: Arguments) -> CallWork:
        scores, values, _ = _products(call, layout)
        made = [call.shape(name) for name in _QKV]
        return call.work(2 * (scores + values), _QKV, made, recompute=scores, unread=("dq", "dk", "dv"))

    return count


_FLASH: Final = "q k v ends_q? ends_k? *max_q *max_k *dropout *causal *debug"
_FLASH_SCALES: Final = "q_scale? k_scale? v_scale?"
_FLASH_WINDOW: Final = "*scale *left *right used_k? alibi?"
_FLASH_GRAD: Final = "grad q k v result sums ends_q? ends_k? *max_q *max_k *dropout *causal seed? offset? *scale"
_EFFICIENT: Final = "q k v bias? ends_q? ends_k? *max_q *max_k *dropout *mask_type *keep_sums *scale used_k? *window"
_EFFICIENT_GRAD: Final = (
    "grad q k v bias? result ends_q? ends_k? *max_q *max_k sums *dropout seed? offset? "
    "*mask_type *bias_grad *scale *splits"
)
_FLASH_2: Final = "q k v *dropout *scale *causal *left *right *softcap alibi? *keep_scores"
_FLASH_2_GRAD: Final = (
    "grad q k v result sums dq? dk? dv? *dropout *scale *causal *left *right *softcap alibi? *deterministic seed?"
)
_FLASH_3: Final = (
    "q k v new_k? new_v? q_v? out? ends_q? ends_k? ends_new? used_q? used_k? *max_q *max_k pages? rows? left_pad? "
    "cos? sin? rotary_lengths? q_scale? k_scale? v_scale? *scale *causal *left *right *chunk ..."
)
_FLASH_3_LENGTHS: Final = "ends_q? ends_k? used_q? used_k? *max_q *max_k"
_FLASH_3_END: Final = "*scale *causal *left *right *softcap *deterministic *margin"
_FLASH_3_GRAD: Final = (
    f"grad q k v result sums {_FLASH_3_LENGTHS} {_FLASH_3_END} | "
    f"grad q k v result sums {_FLASH_3_LENGTHS} dq? dk? dv? {_FLASH_3_END}"
)

# Kernels' own ops follow torch 2.13, back to 2.1 where fewer arguments are told apart by their number; those of
# flash_attn follow its versions 2.7 and 3.0. Ops for sequences of different lengths have no formula.
ATTENTION: Final[Mapping[str, Formula]] = {
    **formulas(
        "scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_flash_attention "
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable",
        "q k v ...",
        _forward(_heads_first),
    ),
    **formulas(
        "_scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward "
        "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward "
        "_scaled_dot_product_fused_attention_overrideable_backward",
        "grad q k v ...",
        _backward(_heads_first),
    ),
    **formulas(
        "_flash_attention_forward",
        f"{_FLASH} *scale | {_FLASH} {_FLASH_WINDOW} | {_FLASH} {_FLASH_WINDOW} pages? *splits | "
        f"{_FLASH} {_FLASH_SCALES} {_FLASH_WINDOW}",
        _forward(_length_first),
    ),
    **formulas("_flash_attention_backward", f"{_FLASH_GRAD} | {_FLASH_GRAD} *left *right", _backward(_length_first)),
    **formulas("_efficient_attention_forward", _EFFICIENT, _forward(_length_first)),
    **formulas(
        "_efficient_attention_backward",
        f"{_EFFICIENT_GRAD} | {_EFFICIENT_GRAD} *window *shared",
        _backward(_length_first),
    ),
    "flash_attn::_flash_attn_forward": Formula(_FLASH_2, _forward(_length_first)),
    "flash_attn::_flash_attn_backward": Formula(_FLASH_2_GRAD, _backward(_length_first)),
    "flash_attn_3::_flash_attn_forward": Formula(_FLASH_3, _forward(_length_first)),
    "flash_attn_3::fwd": Formula(_FLASH_3, _forward(_length_first)),
    "flash_attn_3::_flash_attn_backward": Formula(_FLASH_3_GRAD, _backward(_length_first)),
    "flash_attn_3::bwd": Formula(
        f"grad q k v result sums dq? dk? dv? {_FLASH_3_LENGTHS} {_FLASH_3_END}", _backward(_length_first)
    ),
}
