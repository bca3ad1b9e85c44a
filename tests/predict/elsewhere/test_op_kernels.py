import json

import pytest

from lostflops.predict.costs.kernels.model import KernelWork
from lostflops.predict.elsewhere.op_kernels import kernel_of_op

Shapes = list[list[int]] | list[list[list[int]]]


def kernel(name: str, shapes: Shapes, inputs: list[str] | None = None) -> KernelWork | None:
    types = ["TensorList" if shape and isinstance(shape[0], list) else "float" if shape else "" for shape in shapes]
    return kernel_of_op(name, json.dumps(shapes), json.dumps(types), None if inputs is None else json.dumps(inputs))


@pytest.mark.parametrize(
    ("name", "shapes", "sides"),
    [
        ("aten::mm", [[4, 8], [8, 16]], (1, 4, 16, 8)),
        ("aten::addmm", [[16], [4, 8], [8, 16], [], []], (1, 4, 16, 8)),
        ("aten::bmm", [[3, 4, 8], [3, 8, 16]], (3, 4, 16, 8)),
        ("aten::linear", [[5, 4, 8], [16, 8], [16]], (1, 20, 16, 8)),
        ("aten::mkldnn_linear", [[5, 4, 8], [16, 8], [16]], (1, 20, 16, 8)),
        ("aten::mv", [[4, 8], [8]], (1, 4, 1, 8)),
    ],
)
def test_products_have_their_sides(name: str, shapes: Shapes, sides: tuple[int, ...]) -> None:
    made = kernel(name, shapes, ["", "", "", "1", "1"] if name == "aten::addmm" else None)
    assert made is not None
    assert (made.batch, made.m, made.n, made.k) == sides
    assert made.flops == 2 * sides[0] * sides[1] * sides[2] * sides[3]
    assert made.kind == "matmul"


def test_a_convolution_is_the_product_of_its_weight() -> None:
    settings = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
    made = kernel("aten::mkldnn_convolution", [[2, 8, 16, 16], [32, 8, 3, 3], [], [], [], [], []], settings)
    assert made is not None
    assert (made.kind, made.batch, made.n, made.k) == ("convolution", 1, 32, 8 * 9)
    assert made.m == 2 * 16 * 16


@pytest.mark.parametrize(
    ("name", "shapes", "floats"),
    [
        ("aten::add", [[100], [100]], 300),
        ("aten::add_", [[100], [100]], 300),
        ("aten::mul_", [[100], []], 200),
        ("aten::gelu", [[10, 10]], 200),
        ("aten::zero_", [[100]], 100),
        ("aten::copy_", [[100], [100]], 200),
        ("aten::sum", [[10, 10]], 100),
        ("aten::cat", [[[50], [50]]], 200),
        ("aten::_log_softmax", [[10, 10]], 200),
        ("aten::nll_loss_forward", [[10, 10], [10]], 10),
    ],
)
def test_other_ops_move_what_they_read_and_write(name: str, shapes: Shapes, floats: int) -> None:
    made = kernel(name, shapes)
    assert made is not None
    assert made.bytes == 4 * floats
    assert made.flops == 0


def test_a_lookup_reads_only_its_rows() -> None:
    shapes = json.dumps([[50_000, 64], [], [10]])
    made = kernel_of_op("aten::index_select", shapes, json.dumps(["float", "Scalar", "long int"]), None)
    assert made is not None
    assert made.bytes == 2 * 10 * 64 * 4 + 10 * 8


@pytest.mark.parametrize("name", ["aten::view", "aten::t", "aten::empty", "mylib::fused_matmul"])
def test_ops_without_a_known_kernel_have_none(name: str) -> None:
    assert kernel(name, [[10, 10]]) is None


def test_ops_without_shapes_have_none() -> None:
    assert kernel_of_op("aten::mm", None, None, None) is None
    assert kernel_of_op("aten::add", "nonsense", "[]", None) is None
