"""FLOPs of ops: hand-made records, what torch itself counts, garbage, and every real trace."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import igzip
from tests.shared_data import TRACES, needs_traces

from lostflops.account.facts.flops import FORMULAS, CallWork, op_work
from lostflops.account.facts.op_arguments import UnknownArguments, read_arguments

TYPES = {
    "bf16": "c10::BFloat16",
    "fp16": "c10::Half",
    "fp32": "float",
    "fp8": "c10::Float8_e4m3fn",
    "int8": "signed char",
}


def work(name: str, *arguments: Any) -> CallWork | None:
    """Tensors are `("bf16", 4, 8)`, nothing is None, and anything else is a scalar as Kineto prints it."""
    tensors = [isinstance(argument, tuple) for argument in arguments]
    pairs = list(zip(arguments, tensors, strict=True))
    shapes = [list(argument[1:]) if tensor else [] for argument, tensor in pairs]
    types = [TYPES.get(a[0], a[0]) if tensor else "" if a is None else "Scalar" for a, tensor in pairs]
    inputs = ["" if tensor or argument is None else str(argument) for argument, tensor in pairs]
    return op_work(name, json.dumps(shapes), json.dumps(types), json.dumps(inputs))


MATMULS = [
    (("aten::mm", ("bf16", 4, 8), ("bf16", 8, 16)), CallWork(1024, 0, 2 * (32 + 128 + 64), "bf16")),
    (("aten::mm", ("fp32", 4, 8), ("fp32", 8, 16), ("fp32", 4, 16)), CallWork(1024, 0, 896, "fp32")),
    (("aten::mm", ("bf16", 4, 8), ("bf16", 8, 16), 6), CallWork(1024, 0, 2 * (32 + 128) + 4 * 64, "bf16")),
    (("aten::bmm", ("fp16", 3, 4, 8), ("fp16", 3, 8, 2)), CallWork(384, 0, 2 * (96 + 48 + 24), "fp16")),
    (("aten::mv", ("fp32", 3, 4), ("fp32", 4)), CallWork(24, 0, 76, "fp32")),
    (("aten::dot", ("fp32", 4), ("fp32", 4)), CallWork(8, 0, 36, "fp32")),
    (("aten::addmm", ("fp32", 16), ("fp32", 4, 8), ("fp32", 8, 16), 1, 1), CallWork(1024, 0, 960, "fp32")),
    (("aten::addmm_", ("fp32", 4, 16), ("fp32", 4, 8), ("fp32", 8, 16), 1, 1), CallWork(1024, 0, 1152, "fp32")),
    # A summand times zero is not read.
    (
        ("aten::baddbmm", ("fp16", 3, 4, 2), ("fp16", 3, 4, 8), ("fp16", 3, 8, 2), "0.", 1),
        CallWork(384, 0, 336, "fp16"),
    ),
    (("aten::addbmm", ("fp32", 4, 2), ("fp32", 3, 4, 8), ("fp32", 3, 8, 2), 1, 1), CallWork(384, 0, 640, "fp32")),
    (
        ("aten::_addmm_activation", ("fp32", 16), ("fp32", 4, 8), ("fp32", 8, 16), 1, 1, True),
        CallWork(1024, 0, 960, "fp32"),
    ),
    (("aten::matmul", ("fp32", 5, 1, 2, 3), ("fp32", 4, 3, 6)), CallWork(1440, 0, 4 * (30 + 72 + 240), "fp32")),
    (("aten::matmul", ("fp32", 3), ("fp32", 3)), CallWork(6, 0, 28, "fp32")),
    (("aten::linear", ("bf16", 2, 5, 8), ("bf16", 16, 8), None), CallWork(2560, 0, 2 * (80 + 128 + 160), "bf16")),
    (("aten::_int_mm", ("int8", 4, 8), ("int8", 8, 16)), CallWork(1024, 0, 32 + 128 + 4 * 64, "int8")),
    (
        ("aten::_scaled_mm", ("fp8", 4, 8), ("c10::Float8_e5m2", 8, 16), ("fp32",), ("fp32",), None, None, 15, False),
        CallWork(1024, 0, 32 + 128 + 8 + 2 * 64, "fp8"),
    ),
    (
        ("aten::_scaled_mm", *[("c10::Float4_e2m1fn_x2", 8, 8)] * 2, ("fp32",), ("fp32",), None, None, 15, False),
        CallWork(2 * 1024, 0, 64 + 64 + 8 + 2 * 64, "fp4"),  # shapes count bytes, and a byte holds two numbers
    ),
    (("aten::_grouped_mm", ("bf16", 3, 4, 8), ("bf16", 3, 8, 2), None, None, None), CallWork(384, 0, 336, "bf16")),
    (("mkl::_mkl_linear", ("fp32", 4, 8), ("fp32", 999, 1), ("fp32", 16, 8), None, 4), CallWork(1024, 0, 896, "fp32")),
]

IMAGE, KERNEL = ("fp32", 2, 4, 8, 8), ("fp32", 6, 4, 3, 3)
PAIR = ("[1, 1]", "[1, 1]")
CONVOLUTIONS = [
    # 2 images of 8x8 places, 6x4x3x3 numbers
    (
        ("aten::conv2d", IMAGE, KERNEL, None, "[1, 1]", "[1, 1]", "[1, 1]", 1),
        CallWork(55296, 0, 4 * (512 + 216 + 768), "fp32"),
    ),
    (("aten::conv2d", IMAGE, KERNEL, None, "[2]", "[1]", "[1]", 1), CallWork(13824, 0, 4 * (512 + 216 + 192), "fp32")),
    # groups: each output channel sees 2 of 4 input channels; dilation 2 leaves 4x4 places
    (
        ("aten::conv2d", IMAGE, ("fp32", 6, 2, 3, 3), None, "[1, 1]", "[0, 0]", "[2, 2]", 2),
        CallWork(2 * 2 * 16 * 108, 0, 4 * (512 + 108 + 192), "fp32"),
    ),
    (
        ("aten::conv_transpose2d", IMAGE, ("fp32", 4, 3, 3, 3), None, "[2, 2]", "[0, 0]", "[1, 1]", 2, "[1, 1]"),
        CallWork(2 * 2 * 64 * 108, 0, 4 * (512 + 108 + 2 * 6 * 18 * 18), "fp32"),
    ),
    (
        ("aten::convolution", IMAGE, ("fp32", 4, 3, 3, 3), None, "[2, 2]", "[0, 0]", "[1, 1]", True, "[1, 1]", 2),
        CallWork(2 * 2 * 64 * 108, 0, 4 * (512 + 108 + 2 * 6 * 18 * 18), "fp32"),
    ),
    # libraries take the padding before the stride
    (
        ("aten::cudnn_convolution", IMAGE, KERNEL, "[1, 1]", "[2, 2]", "[1, 1]", 1, False, False, True),
        CallWork(13824, 0, 4 * (512 + 216 + 192), "fp32"),
    ),
    (
        ("aten::miopen_convolution", IMAGE, KERNEL, None, "[1, 1]", "[2, 2]", "[1, 1]", 1, False, False),
        CallWork(13824, 0, 4 * (512 + 216 + 192), "fp32"),
    ),
]


def backward(mask: str) -> tuple[Any, ...]:
    settings = ("[0]", "[2, 2]", "[1, 1]", "[1, 1]", False, "[0, 0]", 1, mask)
    return "aten::convolution_backward", ("fp32", 2, 6, 4, 4), IMAGE, KERNEL, *settings


CONVOLUTIONS += [
    (backward("[True, True, True]"), CallWork(2 * 13824, 0, 4 * (192 + 2 * 512 + 2 * 216), "fp32")),
    # only what a gradient needs is read: the weight for that of the input, the input for that of the weight
    (backward("[True, False, False]"), CallWork(13824, 0, 4 * (192 + 216 + 512), "fp32")),
    (backward("[False, True, False]"), CallWork(13824, 0, 4 * (192 + 512 + 216), "fp32")),
    (
        ("aten::cudnn_convolution_backward_weight", "[6, 4, 3, 3]", ("fp32", 2, 6, 4, 4), IMAGE, *PAIR, *PAIR, 1),
        CallWork(13824, 0, 4 * (192 + 512 + 216), "fp32"),
    ),
    (
        ("aten::mkldnn_convolution_backward_input", "[2, 4, 8, 8]", ("fp32", 2, 6, 4, 4), KERNEL, *PAIR, *PAIR),
        CallWork(13824, 0, 4 * (192 + 216 + 512), "fp32"),
    ),
]

Q, K = ("bf16", 2, 8, 16, 32), ("bf16", 2, 2, 64, 32)  # 8 heads of queries share 2 of keys
Q_NUMBERS, K_NUMBERS, SCORES = 8192, 8192, 2 * 2 * 8 * 16 * 64 * 32
ROWS_Q, ROWS_K = ("bf16", 2, 16, 8, 32), ("bf16", 2, 64, 2, 32)
LENGTHS = [None, None, 16, 64, "0.", True, False, "0.1"]
ENDS = [("int", 3), ("int", 3)]
SUMS = ("fp32", 2, 8, 16)
GRAD = (ROWS_Q, ROWS_Q, ROWS_K, ROWS_K, ROWS_Q, SUMS)
FORWARD_BYTES = 2 * (2 * Q_NUMBERS + 2 * K_NUMBERS)
ATTENTION = [
    (
        ("aten::scaled_dot_product_attention", Q, K, K, None, "0.", True, None, True),
        CallWork(2 * SCORES, 0, FORWARD_BYTES, "bf16"),
    ),
    (
        ("aten::_scaled_dot_product_flash_attention", Q, K, K, "0.", True, False, "0.1"),
        CallWork(2 * SCORES, 0, FORWARD_BYTES, "bf16"),
    ),
    (
        ("aten::_scaled_dot_product_efficient_attention", Q, K, K, None, True, "0.", True, None),
        CallWork(2 * SCORES, 0, FORWARD_BYTES, "bf16"),
    ),
    (
        (
            "aten::_scaled_dot_product_cudnn_attention_backward",
            Q,
            Q,
            K,
            K,
            Q,
            SUMS,
            *[None] * 5,
            16,
            64,
            "0.",
            True,
            None,
        ),
        CallWork(4 * SCORES, SCORES, 2 * (4 * Q_NUMBERS + 4 * K_NUMBERS) + 4 * 256, "bf16"),
    ),
    (
        ("aten::_flash_attention_forward", ROWS_Q, ROWS_K, ROWS_K, *LENGTHS),
        CallWork(2 * SCORES, 0, FORWARD_BYTES, "bf16"),
    ),
    (
        ("aten::_flash_attention_forward", ROWS_Q, ROWS_K, ROWS_K, *LENGTHS, None, None, None, None),
        CallWork(2 * SCORES, 0, FORWARD_BYTES, "bf16"),
    ),
    # 15 keys to the left of a query and itself: a quarter of 64
    (
        ("aten::_flash_attention_forward", ROWS_Q, ROWS_K, ROWS_K, *LENGTHS, 15, 0, None, None),
        CallWork(2 * SCORES // 4, 0, FORWARD_BYTES, "bf16"),
    ),
    (
        ("flash_attn::_flash_attn_forward", ROWS_Q, ROWS_K, ROWS_K, "0.", "0.1", True, -1, -1, "0.", None, False),
        CallWork(2 * SCORES, 0, FORWARD_BYTES, "bf16"),
    ),
    (
        ("flash_attn::_flash_attn_backward", *GRAD, *GRAD[1:4], "0.", "0.1", True, -1, -1, "0.", None, False, None),
        CallWork(4 * SCORES, SCORES, 2 * (4 * Q_NUMBERS + 4 * K_NUMBERS) + 4 * 256, "bf16"),
    ),
    (
        ("flash_attn_3::bwd", *GRAD, *[None] * 7, None, None, "0.1", True, -1, 0, "0.", False, 0),
        CallWork(4 * SCORES, SCORES, 2 * (4 * Q_NUMBERS + 4 * K_NUMBERS) + 4 * 256, "bf16"),
    ),
]

UNKNOWN = {
    "no formula": ("aten::relu", ("fp32", 4, 8)),
    "inner dimensions differ": ("aten::mm", ("fp32", 4, 8), ("fp32", 9, 16)),
    "batches differ": ("aten::bmm", ("fp32", 1, 4, 8), ("fp32", 3, 8, 2)),
    "other rank": ("aten::mm", ("fp32", 1, 4, 8), ("fp32", 1, 8, 16)),
    "mixed precision, before autocast": ("aten::linear", ("bf16", 4, 8), ("fp32", 16, 8), None),
    "complex": ("aten::mm", ("c10::complex<float>", 4, 8), ("c10::complex<float>", 8, 16)),
    "what else lay on TorchScript's stack": ("aten::matmul", ("fp32", 2048, 6, 20), ("fp32", 45, 16), ("fp32", 16, 20)),
    "one argument too many": ("aten::linear", ("fp32", 7, 7), ("fp32", 4, 8), ("fp32", 16, 8), ("fp32", 16)),
    "groups that only the device knows": (
        "aten::_grouped_mm",
        ("bf16", 9, 8),
        ("bf16", 3, 8, 2),
        ("int", 3),
        *[None] * 2,
    ),
    "padding by name": ("aten::conv2d", IMAGE, KERNEL, None, "[1, 1]", None, "[1, 1]", 1),
    "kernel larger than the image": ("aten::conv2d", ("fp32", 1, 4, 1, 1), KERNEL, None, "[1]", "[0]", "[1]", 1),
    "lengths in a tensor": ("aten::_flash_attention_forward", *[("bf16", 99, 8, 32)] * 3, *ENDS, *LENGTHS[2:]),
    "and a batch of one": ("aten::_flash_attention_forward", *[("bf16", 1, 99, 8, 32)] * 3, *ENDS, *LENGTHS[2:]),
    "more FLOPs than a BIGINT": ("aten::mm", ("fp32", 2**31, 2**31), ("fp32", 2**31, 2**31)),
}


@pytest.mark.parametrize(("call", "expected"), MATMULS + CONVOLUTIONS + ATTENTION)
def test_work(call, expected):
    assert work(*call) == expected


@pytest.mark.parametrize("call", UNKNOWN.values(), ids=UNKNOWN)
def test_cannot_tell(call):
    assert work(*call) is None


def test_what_a_trace_may_lack():
    shapes, dtypes = "[[4, 8], [8, 16]]", '["float", "float"]'
    assert op_work("aten::mm", shapes, dtypes, None) == op_work("aten::mm", shapes, dtypes, '["", ""]')
    for missing in (None, ""):
        assert op_work("aten::mm", missing, dtypes, None) is None
        assert op_work("aten::mm", shapes, missing, None) is None
    convolution = json.dumps([[32, 3, 8, 8], [64, 3, 7, 7], [], [], [], [], [], [], []])
    types = json.dumps(["float", "float", *["GenericList"] * 3, "Int", "Bool", "Bool", "Bool"])
    assert op_work("aten::cudnn_convolution", convolution, types, None) is None  # the stride is not recorded


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([*TYPES.values(), "[1]", "True"]),
    lambda inner: st.lists(inner, max_size=12),
    max_leaves=30,
)
TEXTS = st.none() | st.text() | JSON.map(json.dumps)
SIZES = st.lists(st.lists(st.integers(-1, 9) | st.integers(), max_size=5), max_size=14)
SCALARS = st.sampled_from(
    ["", "0", "1", "-1", "True", "False", "[1, 1]", "[]", "[True]", "[True, False, True]", "[0, -2]", "x"]
)
RECORDS = SIZES.flatmap(
    lambda sizes: st.tuples(
        st.just(json.dumps(sizes)),
        st.lists(
            st.sampled_from(["float", "c10::BFloat16", "", "Scalar"]), min_size=len(sizes), max_size=len(sizes)
        ).map(json.dumps),
        st.none() | st.lists(SCALARS, min_size=len(sizes), max_size=len(sizes)).map(json.dumps),
    )
)


@given(st.sampled_from(sorted(FORMULAS)) | st.text(), TEXTS, TEXTS, TEXTS)
def test_garbage_is_none(name, shapes, dtypes, inputs):
    _check_range(op_work(name, shapes, dtypes, inputs))


@given(st.sampled_from(sorted(FORMULAS)), RECORDS)
def test_odd_records_do_not_raise(name, record):
    _check_range(op_work(name, *record))


@given(st.data())
def test_records_of_the_right_form_do_not_raise(data):
    """Every signature is reached, with shapes and scalars that make no sense together."""
    name = data.draw(st.sampled_from(sorted(FORMULAS)))
    signature = data.draw(st.sampled_from(FORMULAS[name].signature.split("|"))).replace("...", "").split()
    shapes, types, inputs = [], [], []
    for parameter in signature:
        tensor = data.draw(st.booleans()) if parameter.endswith("?") else not parameter.startswith("*")
        types.append("float" if tensor else "")
        shapes.append(data.draw(st.lists(st.integers(0, 4), max_size=5)) if tensor else [])
        inputs.append("" if tensor else data.draw(SCALARS))
    _check_range(op_work(name, json.dumps(shapes), json.dumps(types), json.dumps(inputs)))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '["\ud800"]', "[[1e400]]", "[[1.5, true]]", "[[99999999999999999999999999]]"]
)
def test_hostile_text(text):
    assert op_work("aten::mm", text, text, text) is None
    assert op_work("aten::mm", text, '["float", "float"]', None) is None


def _check_range(found: CallWork | None) -> None:
    assert found is None or all(0 <= count < 2**63 for count in (found.model, found.recompute, found.bytes))


# --- what torch itself says ---


def profiled(run: Callable[[], object], folder: Path) -> list[tuple[dict[str, Any], CallWork]]:
    """The innermost ops with a formula of an exported trace, with their work."""
    profiler = pytest.importorskip("torch.profiler", reason="torch is not installed")
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        run()
    profile.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    ops = [event for event in events if event.get("cat") == "cpu_op" and event["name"] in FORMULAS]
    innermost = [op for op in ops if not any(other is not op and _within(other, op) for other in ops)]
    return [(op, found) for op in innermost if (found := _work_of(op["name"], op["args"]))]


def _within(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    return outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]


def _work_of(name: str, args: dict[str, Any]) -> CallWork | None:
    keys = ("Input Dims", "Input type", "Concrete Inputs")
    return op_work(name, *(json.dumps(args[key]) if key in args else None for key in keys))


def counted_by_torch(run: Callable[[], object]) -> int:
    counter = pytest.importorskip("torch.utils.flop_counter", reason="torch is not installed")
    with counter.FlopCounterMode(display=False) as mode:
        run()
    return int(mode.get_total_flops())


def tensor(*shape: int, dtype: str = "float32") -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.randn(*shape, dtype=getattr(torch, dtype), requires_grad=True)


def forward_backward(
    function: str, *shapes: tuple[int, ...], dtype: str = "float32", **settings: Any
) -> Callable[[], object]:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensors = [tensor(*shape, dtype=dtype) for shape in shapes]
    apply = getattr(torch, function, None) or getattr(torch.nn.functional, function)
    return lambda: apply(*tensors, **settings).sum().backward()


SAME = {
    "linear": ("linear", (4, 5), (6, 5), (6,)),
    "linear, 3 dimensions": ("linear", (2, 4, 5), (6, 5)),
    "matmul, broadcast": ("matmul", (2, 1, 3, 4), (5, 4, 6)),
    "bmm": ("bmm", (2, 3, 4), (2, 4, 5)),
    "baddbmm": ("baddbmm", (2, 3, 5), (2, 3, 4), (2, 4, 5)),
    "addmm": ("addmm", (5,), (3, 4), (4, 5)),
    "conv1d": ("conv1d", (2, 3, 9), (4, 3, 2)),
    "conv2d": ("conv2d", (2, 4, 8, 8), (6, 4, 3, 3)),
    "conv2d without a batch": ("conv2d", (4, 8, 8), (6, 4, 3, 3)),
    "conv3d": ("conv3d", (2, 3, 9, 9, 9), (4, 3, 2, 2, 2)),
    "conv_transpose1d": ("conv_transpose1d", (2, 4, 9), (4, 3, 3)),
}
SETTINGS = {
    "stride and padding": ("conv2d", {"stride": 2, "padding": 1}),
    "dilation": ("conv2d", {"dilation": 2, "stride": (1, 2)}),
    "padding by name": ("conv2d", {"padding": "same"}),
    "transposed": ("conv_transpose2d", {"stride": 2, "output_padding": 1, "padding": 1}),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", SAME.values(), ids=SAME)
def test_torch_counts_the_same(case, dtype, tmp_path):
    run = forward_backward(*case, dtype=dtype)
    assert sum(found.model for _, found in profiled(run, tmp_path)) == counted_by_torch(run) > 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("function", "settings"), SETTINGS.values(), ids=SETTINGS)
def test_torch_counts_the_same_convolution(function, settings, dtype, tmp_path):
    run = forward_backward(function, (2, 4, 10, 12), (4, 4, 3, 3), dtype=dtype, **settings)
    assert sum(found.model for _, found in profiled(run, tmp_path)) == counted_by_torch(run) > 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("function", "weight"), [("conv2d", (6, 2, 3, 3)), ("conv_transpose2d", (4, 3, 3, 3))])
def test_groups_where_torch_counts_too_much(function, weight, dtype, tmp_path):
    """Every multiply-add of the forward pass has one in each gradient, so a whole pass is three times the forward one.
    flop_counter takes the gradient of the weight as if there were one group, here twice as much."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    run = forward_backward(function, (2, 4, 10, 12), weight, dtype=dtype, groups=2, stride=2)
    with torch.no_grad():
        forward = counted_by_torch(
            lambda: getattr(torch, function)(tensor(2, 4, 10, 12), tensor(*weight), groups=2, stride=2)
        )
    assert sum(found.model for _, found in profiled(run, tmp_path)) == 3 * forward
    assert counted_by_torch(run) == 4 * forward


@pytest.mark.parametrize(("heads", "dtype"), [(4, "float32"), (2, "float32"), (4, "bfloat16")])
def test_attention_as_torch_counts_it(heads, dtype, tmp_path):
    """flop_counter has no formula for the fused op of the CPU, so it is compared with the same products one by one. In
    its formula for the backward pass of the GPU stands the second Q·Kᵀ too, which here is told apart."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    shapes = [(2, 4, 16, 8), (2, heads, 24, 8), (2, heads, 24, 8)]
    run = forward_backward("scaled_dot_product_attention", *shapes, dtype=dtype, enable_gqa=heads != 4)
    found = [(op["name"], amount) for op, amount in profiled(run, tmp_path)]
    assert [name for name, _ in found] == [
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
    ]

    def one_by_one():
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            run()

    assert sum(amount.model for _, amount in found) == counted_by_torch(one_by_one)
    assert found[1][1].model == 2 * found[0][1].model

    from torch.utils.flop_counter import sdpa_backward_flop_count

    try:
        fused = sdpa_backward_flop_count(shapes[0], *shapes)
    except AssertionError:
        pytest.skip("this version of torch counts no grouped heads")
    assert found[1][1].model + found[1][1].recompute == fused
    assert {amount.dtype for _, amount in found} == {{"float32": "fp32", "bfloat16": "bf16"}[dtype]}


INSTEAD = {"aten::_scaled_mm": "aten::mm"}
"""What runs inside on a CPU that has no such instructions."""


def test_ops_with_no_formula_in_torch(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    small = torch.ones(32, 32, dtype=torch.int8)
    scaled = torch.ones(32, 32).to(torch.float8_e4m3fn)
    one = torch.ones(())
    runs = {
        "aten::_int_mm": lambda: torch._int_mm(small, small),
        "aten::_scaled_mm": lambda: torch._scaled_mm(scaled, scaled.t(), one, one, out_dtype=torch.bfloat16),
        "aten::addmv_": lambda: torch.mv(torch.ones(32, 1024), torch.ones(1024)),
        "aten::dot": lambda: torch.dot(torch.ones(32 * 1024), torch.ones(32 * 1024)),
    }
    for name, run in runs.items():
        found = profiled(run, tmp_path)
        assert [amount.model for _, amount in found] == [2 * 32 * 1024]
        assert found[0][0]["name"] in {name, INSTEAD.get(name)}


MEANT = {
    "a": {"self", "mat1", "mat", "batch1"},
    "b": {"mat2", "vec", "tensor", "other", "batch2"},
    "c": {"self"},
    "input": {"input", "self", "X"},
    "weight": {"weight", "W", "ORI_W"},
    "grad": {"grad_output", "grad_out", "grad_out_"},
    "mask": {"output_mask"},
    "ends": {"offs"},
    "q": {"query"},
    "k": {"key"},
    "v": {"value"},
    "ends_q": {"cum_seq_q", "cu_seqlens_q"},
    "ends_k": {"cum_seq_k", "cu_seqlens_k"},
    "used_k": {"seqused_k", "seqlen_k"},
    "pages": {"block_table"},
    "causal": {"is_causal"},
    "left": {"window_size_left"},
    "right": {"window_size_right"},
    "window": {"window_size"},
    **{name: {name} for name in ("beta", "alpha", "out_dtype", "stride", "padding", "dilation", "groups")},
    **{name: {name} for name in ("transposed", "output_padding")},
    "out": {"out", "output"},
}


def test_signatures_are_those_of_torch():
    """Also of ops that only run on a device: positions and kinds of all parameters that a formula reads."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    schemas = [schema for schema in torch._C._jit_get_all_schemas() if schema.name in FORMULAS]
    assert len({schema.name for schema in schemas}) > 60
    for schema in schemas:
        names = [argument.name for argument in schema.arguments]
        for absent in (False, True):
            places = _places(schema, absent=absent)
            if places is None and schema.overload_name.endswith(("out", "grad_input")):
                continue  # few signatures hold `out`, which the profiler hardly meets
            assert places is not None, schema
            wrong = {name: names[place] for name, place in places.items() if names[place] not in MEANT.get(name, names)}
            assert not wrong, schema


def _places(schema: Any, *, absent: bool) -> dict[str, int] | None:
    kinds = [str(argument.type) for argument in schema.arguments]
    types = [{"Tensor": "float", "Optional[Tensor]": "" if absent else "float"}.get(kind, "Scalar") for kind in kinds]
    try:
        call = read_arguments(FORMULAS[schema.name].signature, json.dumps([[] for _ in types]), json.dumps(types), None)
    except UnknownArguments:
        return None
    return {name: place for name, place in call.places.items() if name != "..."}


# --- what real traces hold ---

TOLD = {
    "AMD-AGI__TraceLens": (8693, 8693),
    "KellerJordan__modded-nanogpt": (7752, 9512),  # the rest is attention over sequences of different lengths
    "astra-sim__astra-sim": (3216, 3216),
    "facebookresearch__HolisticTraceAnalysis": (4371, 4436),  # the rest are outer ops of TorchScript
    "facebookresearch__param": (240, 240),
    "pytorch__kineto": (48, 4488),  # the rest are convolutions of 2021, recorded without stride and mask
    "sgl-project__sglang": (80, 80),
}
"""Measured on all traces of each set: ops whose work is told, and all that have a formula and shapes."""


class _Args(msgspec.Struct, frozen=True):
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    dtypes: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    inputs: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw())


class _Event(msgspec.Struct, frozen=True):
    name: str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Trace(msgspec.Struct, frozen=True):
    traceEvents: list[_Event] = []  # noqa: N815 - Kineto's spelling


def records(files: Iterable[Path]) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for file in files:
        opened = igzip.open(file) if file.suffix == ".gz" else file.open("rb")
        with opened as stream:
            trace = msgspec.json.decode(stream.read(), type=_Trace)
        for event in trace.traceEvents:
            if event.name in FORMULAS:
                args = msgspec.json.decode(event.args, type=_Args)
                found[event.name, *(bytes(raw).decode() for raw in (args.shapes, args.dtypes, args.inputs))] += 1
    return found


@needs_traces
@pytest.mark.parametrize(("name", "told", "total"), [(name, *counts) for name, counts in TOLD.items()])
def test_share_of_real_ops(name, told, total):
    traces = [file for file in (TRACES / name).rglob("*.json*") if "_et_" not in file.name]
    ops = {record: count for record, count in records(traces).items() if record[1]}
    assert sum(ops.values()) == total
    assert sum(count for record, count in ops.items() if op_work(*record)) >= told
