"""FLOPs of matrix products: 2 for each element of the result and each step along the contracted dimension."""

from collections.abc import Callable, Mapping
from itertools import zip_longest
from math import prod
from typing import Final

from lostflops.account.facts.op_arguments import Arguments, CallWork, Formula, Shape, UnknownArguments, formulas

_AB: Final = ("a", "b")


def _broadcast(left: Shape, right: Shape) -> Shape:
    pairs = list(zip_longest(reversed(left), reversed(right), fillvalue=1))
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        raise UnknownArguments
    return tuple(b if a == 1 else a for a, b in reversed(pairs))


def _multiply(left: Shape, right: Shape) -> tuple[int, Shape]:
    """Return FLOPs and shape of `left @ right`, by the rules of `torch.matmul`.

    >>> _multiply((8, 1, 2, 3), (5, 3, 4))
    (1920, (8, 5, 2, 4))
    """
    if not left or not right or left[-1] != right[-2:][0]:
        raise UnknownArguments
    columns = right[-1:] if len(right) > 1 else ()
    made = (*_broadcast(left[:-2], right[:-2]), *left[-2:-1], *columns)
    return 2 * prod(made) * left[-1], made


def _multiply_ranked(call: Arguments, left_rank: int, right_rank: int) -> tuple[int, Shape]:
    left, right = call.shape("a", left_rank), call.shape("b", right_rank)
    if left[:-2] != right[:-2]:
        raise UnknownArguments
    return _multiply(left, right)


def _product(left_rank: int, right_rank: int) -> Callable[[Arguments], CallWork]:
    def count(call: Arguments) -> CallWork:
        model, made = _multiply_ranked(call, left_rank, right_rank)
        return call.work(model, _AB, [made])

    return count


def _any_product(call: Arguments) -> CallWork:
    model, made = _multiply(call.shape("a"), call.shape("b"))
    return call.work(model, _AB, [made])


def _sum(left_rank: int, right_rank: int) -> Callable[[Arguments], CallWork]:
    """Return a formula for `beta * c + alpha * a @ b`."""

    def count(call: Arguments) -> CallWork:
        model, made = _multiply_ranked(call, left_rank, right_rank)
        return call.work(model, _AB, [made], unread=_unread_summand(call))

    return count


def _sum_over_batch(call: Arguments) -> CallWork:
    model, made = _multiply_ranked(call, 3, 3)
    return call.work(model, _AB, [made[1:]], unread=_unread_summand(call))


def _unread_summand(call: Arguments) -> list[str]:
    return ["c"] if call.inputs is not None and call.text("beta") in ("0", "0.") else []


def _count_scaled_mm(call: Arguments) -> CallWork:
    """Count a scaled product; shapes of fp4 tensors count bytes, and each byte holds two numbers."""
    model, made = _multiply_ranked(call, 2, 2)
    return call.work(model * (2 if call.dtype(*_AB) == "fp4" else 1), _AB, [made])


def _integer_product(call: Arguments) -> CallWork:
    model, made = _multiply_ranked(call, 2, 2)
    return call.work(model, _AB, [made], made_size=4)


def _count_grouped_mm(call: Arguments) -> CallWork:
    """Count batches of equal length only: where other groups end is known to the device alone."""
    if call.has("ends"):
        raise UnknownArguments
    return _product(3, 3)(call)


def _linear(call: Arguments) -> CallWork:
    weight = call.shape("weight")
    if len(weight) > 2:
        raise UnknownArguments
    model, made = _multiply(call.shape("input"), weight[::-1])
    return call.work(model, ("input", "weight"), [made], unread=["packed"])


_PLAIN: Final = "a b | a b out | a b *out_dtype | a b *out_dtype out"
_SUM: Final = (
    "c a b *beta *alpha | c a b *beta *alpha out | c a b *out_dtype *beta *alpha | c a b *out_dtype *beta *alpha out"
)
_ACTIVATED: Final = "c a b *beta *alpha *use_gelu | c a b *beta *alpha *use_gelu out"
_SCALED: Final = "a b scale_a scale_b bias? scale_result? *out_dtype *use_fast_accum"
_SCALED_BY_LISTS: Final = "a b *scale_a *recipe_a *swizzle_a *scale_b *recipe_b *swizzle_b bias? *out_dtype ..."

MATMULS: Final[Mapping[str, Formula]] = {
    **formulas("mm", _PLAIN, _product(2, 2)),
    **formulas("bmm", _PLAIN, _product(3, 3)),
    **formulas("mv", _PLAIN, _product(2, 1)),
    **formulas("dot vdot", _PLAIN, _product(1, 1)),
    **formulas("matmul", _PLAIN, _any_product),
    **formulas("addmm addmm_", _SUM, _sum(2, 2)),
    **formulas("_addmm_activation", _ACTIVATED, _sum(2, 2)),
    **formulas("addmv addmv_", _SUM, _sum(2, 1)),
    **formulas("baddbmm baddbmm_", _SUM, _sum(3, 3)),
    **formulas("addbmm addbmm_", _SUM, _sum_over_batch),
    **formulas("_int_mm", _PLAIN, _integer_product),
    **formulas("_scaled_mm", f"{_SCALED} | {_SCALED} out", _count_scaled_mm),
    **formulas("_scaled_mm_v2", _SCALED_BY_LISTS, _count_scaled_mm),
    **formulas("_grouped_mm", "a b ends? bias? *out_dtype", _count_grouped_mm),
    **formulas("linear mkldnn_linear", "input weight bias? | input weight bias? out", _linear),
    "mkl::_mkl_linear": Formula("input packed weight bias? *batch_size", _linear),
    "mkldnn::_linear_pointwise": Formula(
        "input other weight bias? *attr | input weight bias? *attr *scalars *algorithm", _linear
    ),
}
