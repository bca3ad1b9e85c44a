"""FLOPs of convolutions: 2 for each element of the weight and each place where the kernel is applied.

A convolution applies its kernel at every place of the output, a transposed one at every place of the input, and each of
the two gradients covers the same places again. The weight is `[out, in / groups, ...]`, transposed `[in, out / groups,
...]`, so its size already includes channels and groups. Places in the padding count as others do.
"""

from collections.abc import Callable, Mapping
from math import prod
from operator import add
from typing import Final

from lostflops.account.facts.op_arguments import Arguments, CallWork, Formula, Shape, UnknownArguments, formulas

_OPERANDS: Final = ("input", "weight")


def _once(places: Shape, weight: Shape) -> int:
    return 2 * places[0] * prod(places[2:]) * prod(weight)


def _check(image: Shape, weight: Shape, *, transposed: bool) -> None:
    ranks_agree = len(image) == len(weight) > 2
    if not ranks_agree or not weight[1] or (image[1] != weight[0] if transposed else image[1] % weight[1]):
        raise UnknownArguments


def _settings(call: Arguments, count: int, *names: str) -> list[list[int]]:
    """Return each setting along `count` dimensions; a parameter that the op does not have gets its neutral value."""
    unset = {"dilation": 1, "output_padding": 0}
    return [call.integers(name, count) if name in call.places else [unset[name]] * count for name in names]


def _plain(call: Arguments) -> CallWork:
    image, weight = call.shape("input"), call.shape("weight")
    _check(image, weight, transposed=False)
    along = _settings(call, len(image) - 2, "stride", "padding", "dilation")
    if min(along[0]) < 1:
        raise UnknownArguments
    made = (image[0], weight[0], *map(_length, image[2:], weight[2:], *along))
    if min(made) < 0:
        raise UnknownArguments
    return call.work(_once(made, weight), _OPERANDS, [made])


def _length(image: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    return (image + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _count_transposed_conv(call: Arguments) -> CallWork:
    image, weight = call.shape("input"), call.shape("weight")
    _check(image, weight, transposed=True)
    *along, extra = _settings(call, len(image) - 2, "stride", "padding", "dilation", "output_padding")
    groups = call.integer("groups") or 1
    lengths = map(add, map(_transposed_length, image[2:], weight[2:], *along), extra)
    made = (image[0], weight[1] * groups, *lengths)
    if min(made) < 0:
        raise UnknownArguments
    return call.work(_once(image, weight), _OPERANDS, [made])


def _transposed_length(image: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    return (image - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1


def _either(call: Arguments) -> CallWork:
    return _count_transposed_conv(call) if call.flag("transposed") else _plain(call)


def _gradients(call: Arguments, *, transposed: bool) -> CallWork:
    """Count the gradients that `mask` asks for; that of the bias is not a product, and its traffic is negligible."""
    grad, image, weight = call.shape("grad"), call.shape("input"), call.shape("weight")
    _check(image, weight, transposed=transposed)
    if len(grad) != len(image) or grad[0] != image[0] or not (transposed or grad[1] == weight[0]):
        raise UnknownArguments
    of_input, of_weight = call.flags("mask", atleast=2)[:2]
    made = [image] * of_input + [weight] * of_weight
    unread = ["weight"] * (not of_input) + ["input"] * (not of_weight)
    return call.work(len(made) * _once(image if transposed else grad, weight), _OPERANDS, made, unread=unread)


def _plain_gradients(call: Arguments) -> CallWork:
    return _gradients(call, transposed=False)


def _transposed_gradients(call: Arguments) -> CallWork:
    return _gradients(call, transposed=True)


def _either_gradients(call: Arguments) -> CallWork:
    return _gradients(call, transposed=call.flag("transposed"))


def _one_gradient(made: str, other: str) -> Callable[[Arguments], CallWork]:
    """Return a formula for ops up to PyTorch 1.10 that compute one gradient; its size is an argument."""

    def count(call: Arguments) -> CallWork:
        grad, shape = call.shape("grad"), call.shape(other)
        size = tuple(call.integers(made, len(shape)))
        image, weight = (size, shape) if made == "input" else (shape, size)
        _check(image, weight, transposed=False)
        if min(size) < 0 or len(grad) != len(image) or grad[:2] != (image[0], weight[0]):
            raise UnknownArguments
        return call.work(_once(grad, weight), ("grad", other), [size])

    return count


_ALONG: Final = "*stride *padding *dilation"
_GENERAL: Final = f"input weight bias? {_ALONG} *transposed *output_padding *groups"
_NAMED: Final = f"input weight bias? {_ALONG} *groups"
_ADD_RELU: Final = f"input weight other *alpha bias? {_ALONG} *groups"
_SLOW: Final = "input weight *kernel_size bias? *stride *padding"
# Libraries take the padding first.
_LIBRARY: Final = "*padding *stride *dilation *groups"
_LIBRARY_TRANSPOSED: Final = "*padding *output_padding *stride *dilation *groups"
_MASK: Final = "*benchmark *deterministic *mask"
_MASK_WITH_TF32: Final = "*benchmark *deterministic *allow_tf32 *mask"
_OLD: Final = f"input grad weight {_LIBRARY}"
_OLD_TRANSPOSED: Final = f"input grad weight {_LIBRARY_TRANSPOSED}"

CONVOLUTIONS: Final[Mapping[str, Formula]] = {
    **formulas("convolution convolution_overrideable", _GENERAL, _either),
    **formulas("_convolution", f"{_GENERAL} ...", _either),
    **formulas("conv1d conv2d conv3d cudnn_convolution_relu miopen_convolution_relu", _NAMED, _plain),
    **formulas("cudnn_convolution_add_relu miopen_convolution_add_relu", _ADD_RELU, _plain),
    **formulas("cudnn_convolution", f"input weight {_LIBRARY} ...", _plain),
    **formulas(
        "miopen_convolution miopen_depthwise_convolution mkldnn_convolution",
        f"input weight bias? {_LIBRARY} ...",
        _plain,
    ),
    "mkldnn::_convolution_pointwise": Formula(
        f"input other weight bias? {_LIBRARY} ... | input weight bias? {_LIBRARY} ...", _plain
    ),
    **formulas("thnn_conv2d _slow_conv2d_forward slow_conv3d slow_conv3d_forward", f"{_SLOW} | {_SLOW} out", _plain),
    **formulas(
        "slow_conv_dilated2d slow_conv_dilated3d _conv_depthwise2d conv_depthwise3d",
        f"{_SLOW} *dilation | {_SLOW} *dilation out",
        _plain,
    ),
    **formulas(
        "conv_transpose1d conv_transpose2d conv_transpose3d",
        "input weight bias? *stride *padding *output_padding *groups *dilation",
        _count_transposed_conv,
    ),
    **formulas("cudnn_convolution_transpose", f"input weight {_LIBRARY_TRANSPOSED} ...", _count_transposed_conv),
    **formulas("miopen_convolution_transpose", f"input weight bias? {_LIBRARY_TRANSPOSED} ...", _count_transposed_conv),
    **formulas(
        "slow_conv_transpose2d slow_conv_transpose3d", f"{_SLOW} *output_padding *dilation", _count_transposed_conv
    ),
    **formulas(
        "convolution_backward",
        f"grad input weight *bias_sizes {_ALONG} *transposed *output_padding *groups *mask",
        _either_gradients,
    ),
    **formulas(
        "convolution_backward_overrideable",
        f"grad input weight {_ALONG} *transposed *output_padding *groups *mask",
        _either_gradients,
    ),
    **formulas("_slow_conv2d_backward", "grad input weight *kernel_size *stride *padding *mask", _plain_gradients),
    **formulas(
        "cudnn_convolution_backward miopen_convolution_backward miopen_depthwise_convolution_backward",
        f"{_OLD} {_MASK} | {_OLD} {_MASK_WITH_TF32}",
        _plain_gradients,
    ),
    **formulas("mkldnn_convolution_backward", f"{_OLD} *mask", _plain_gradients),
    **formulas(
        "cudnn_convolution_transpose_backward miopen_convolution_transpose_backward",
        f"{_OLD_TRANSPOSED} {_MASK} | {_OLD_TRANSPOSED} {_MASK_WITH_TF32}",
        _transposed_gradients,
    ),
    **formulas(
        "cudnn_convolution_backward_input miopen_convolution_backward_input "
        "miopen_depthwise_convolution_backward_input mkldnn_convolution_backward_input",
        "*input grad weight ...",
        _one_gradient("input", "weight"),
    ),
    **formulas(
        "cudnn_convolution_backward_weight miopen_convolution_backward_weight "
        "miopen_depthwise_convolution_backward_weight mkldnn_convolution_backward_weights",
        "*weight grad input ...",
        _one_gradient("weight", "input"),
    ),
}
