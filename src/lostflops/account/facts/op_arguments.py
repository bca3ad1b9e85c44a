"""Recorded arguments of an op, read by the names of its parameters.

Kineto records arguments by position: `Input Dims`, `Input type` and, since PyTorch 2, `Concrete Inputs`. A *signature*
gives the positions names: `x` is a tensor, `x?` a tensor or nothing, `*x` anything but a tensor, `...` whatever
follows. Alternatives are separated by `|`; the first that fits is used.

    >>> call = read_arguments("a b *out_dtype", "[[2, 3], [3, 4], []]", '["float", "float", ""]', None)
    >>> call.shape("b"), call.dtype("a", "b")
    ((3, 4), 'fp32')
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

Shape: TypeAlias = tuple[int, ...]
_T = TypeVar("_T")

# Names of C++ types as torch/csrc/profiler writes them: precision, bytes of an element. `Int` and `Bool` with a capital
# are tags of scalars in old traces, no types of tensors; complex and quantised tensors have no formula.
_TYPES: Final = {
    "c10::Float4_e2m1fn_x2": ("fp4", 1),
    "c10::Float8_e4m3fn": ("fp8", 1),
    "c10::Float8_e4m3fnuz": ("fp8", 1),
    "c10::Float8_e5m2": ("fp8", 1),
    "c10::Float8_e5m2fnuz": ("fp8", 1),
    "c10::Float8_e8m0fnu": ("e8m0", 1),
    "c10::BFloat16": ("bf16", 2),
    "c10::Half": ("fp16", 2),
    "float": ("fp32", 4),
    "double": ("fp64", 8),
    "bool": ("bool", 1),
    "signed char": ("int8", 1),
    "unsigned char": ("uint8", 1),
    "short": ("int16", 2),
    "short int": ("int16", 2),
    "int": ("int32", 4),
    "long": ("int64", 8),
    "long int": ("int64", 8),
}
# Sizes by number of c10::ScalarType, which is how `out_dtype` is recorded: torch/headeronly/core/ScalarType.h.
_SIZE_BY_NUMBER: Final = {3: 4, 5: 2, 6: 4, 7: 8, 15: 2, 23: 1, 24: 1, 25: 1, 26: 1}
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_MOST: Final = 2**63 - 1
"""Largest count that BIGINT can store; no real count comes near."""


class UnknownArguments(Exception):
    """Raised if the record does not show the arguments, or is not understood."""


@dataclass(frozen=True, slots=True)
class CallWork:
    """Work of one call of an op; see `flops` for what counts."""

    model: int
    """FLOPs of the model."""
    recompute: int
    """FLOPs that the op's own algorithm does a second time."""
    bytes: int
    """Least traffic: every input and output tensor once."""
    dtype: str
    """Precision of the multiplied operands: `bf16`, `fp16`, `fp32`, `fp8`, ..."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call; every method raises `UnknownArguments` if the record does not answer."""

    places: dict[str, int]
    shapes: list[list[Any]]
    types: list[str]
    inputs: list[str] | None

    def has(self, name: str) -> bool:
        """Return whether a tensor was passed as `name`."""
        place = self.places.get(name)
        return place is not None and self.types[place] in _TYPES

    def shape(self, name: str, rank: int | None = None) -> Shape:
        shape = self._shape(self.places[name])
        if rank not in (None, len(shape)):
            raise UnknownArguments
        return shape

    def dtype(self, *names: str) -> str:
        """Return the one precision of these tensors; raise if they are mixed, as in an outer op, before autocast."""
        precisions = {_TYPES[self.types[self.places[name]]][0] for name in names}
        if len(precisions) > 1:
            raise UnknownArguments
        return precisions.pop()

    def size(self, name: str) -> int:
        return _TYPES[self.types[self.places[name]]][1]

    def text(self, name: str) -> str:
        """Return a scalar as recorded; an empty text if nothing was passed."""
        if self.inputs is None:
            raise UnknownArguments
        return self.inputs[self.places[name]]

    def flag(self, name: str) -> bool:
        return _flag(self.text(name))

    def flags(self, name: str, *, atleast: int) -> list[bool]:
        flags = [_flag(item) for item in _items(self.text(name))]
        if len(flags) < atleast:
            raise UnknownArguments
        return flags

    def integer(self, name: str) -> int | None:
        """Return an integer; None if it was not passed, or the op of this version has no such parameter."""
        text = self.text(name) if name in self.places else ""
        return _integer(text) if text else None

    def integers(self, name: str, count: int) -> list[int]:
        """Return `count` integers; a list with one item means `count` equal ones, as in `stride=[2]`."""
        items = [_integer(item) for item in _items(self.text(name))]
        if len(items) == 1:
            items *= count
        if len(items) != count:
            raise UnknownArguments
        return items

    def made_size(self, operand: str) -> int:
        """Return the bytes of an element of the result: those of `out`, of `out_dtype`, else of `operand`."""
        if self.has("out"):
            return self.size("out")
        number = self.integer("out_dtype")
        if number is None:
            return self.size(operand)
        if number not in _SIZE_BY_NUMBER:
            raise UnknownArguments
        return _SIZE_BY_NUMBER[number]

    def work(
        self,
        model: int,
        operands: Sequence[str],
        made: Sequence[Shape],
        *,
        recompute: int = 0,
        made_size: int | None = None,
        unread: Iterable[str] = (),
    ) -> CallWork:
        """Return the work of an op that multiplies `operands`, makes shapes `made`, and does not read `unread`."""
        skipped = {self.places[name] for name in (*unread, "out") if name in self.places}
        read = sum(
            prod(self._shape(place)) * _TYPES[recorded][1]
            for place, recorded in enumerate(self.types)
            if recorded in _TYPES and place not in skipped
        )
        if self.has("out") and prod(self.shape("out")) not in (0, sum(map(prod, made))):
            raise UnknownArguments  # it is no `out`: TorchScript records what else lies on its stack
        size = self.made_size(operands[0]) if made_size is None else made_size
        written = sum(map(prod, made)) * size
        if max(model + recompute, read + written) > _MOST:
            raise UnknownArguments
        return CallWork(model, recompute, read + written, self.dtype(*operands))

    def _shape(self, place: int) -> Shape:
        shape = tuple(self.shapes[place])
        if not all(isinstance(length, int) and length >= 0 for length in shape):
            raise UnknownArguments
        return shape


@dataclass(frozen=True, slots=True)
class Formula:
    """Formula for the work of an op, from its arguments."""

    signature: str
    count: Callable[[Arguments], CallWork]

    def __call__(self, shapes: str, dtypes: str, inputs: str | None) -> CallWork:
        return self.count(read_arguments(self.signature, shapes, dtypes, inputs))


def formulas(names: str, signature: str, count: Callable[[Arguments], CallWork]) -> dict[str, Formula]:
    """Return one formula for several ops of ATen."""
    return {f"aten::{name}": Formula(signature, count) for name in names.split()}


def read_arguments(signature: str, shapes: str, dtypes: str, inputs: str | None) -> Arguments:
    """Read arguments by the first alternative of `signature` that fits; raise `UnknownArguments` if none does."""
    dims = _decode(shapes, list[list[int | list[Any]]])
    types = _decode(dtypes, list[str])
    values = _decode(inputs, list[str]) if inputs else None
    if len(types) != len(dims) or (values is not None and len(values) != len(dims)):
        raise UnknownArguments
    for alternative in signature.split("|"):
        parameters = alternative.split()
        if _fits(parameters, types):
            places = {parameter.strip("*?"): place for place, parameter in enumerate(parameters)}
            return Arguments(places, dims, types, values)
    raise UnknownArguments


def read_tensors(shapes: str, dtypes: str) -> list[tuple[Shape, str, int]]:
    """Return shape, precision and bytes of an element of each tensor that was passed, also of those in lists, whose
    precision is not recorded: 4 bytes are assumed. Raise `UnknownArguments` if the record is not understood.

    >>> read_tensors("[[2, 3], [], [[4], [5]]]", '["c10::BFloat16", "Scalar", "TensorList"]')
    [((2, 3), 'bf16', 2), ((4,), '', 4), ((5,), '', 4)]
    """
    dims = _decode(shapes, list[list[int | list[int]]])
    types = _decode(dtypes, list[str])
    if len(types) != len(dims):
        raise UnknownArguments
    found: list[tuple[Shape, str, int]] = []
    for shape, recorded in zip(dims, types, strict=True):
        if recorded in _TYPES and all(isinstance(length, int) for length in shape):
            found.append((tuple(length for length in shape if isinstance(length, int)), *_TYPES[recorded]))
        else:
            found += [(tuple(inner), "", 4) for inner in shape if isinstance(inner, list)]
    return found


def _fits(parameters: list[str], types: list[str]) -> bool:
    if parameters[-1] == "...":
        parameters = parameters[:-1]
        types = types[: len(parameters)]
    return len(parameters) == len(types) and all(map(_fits_one, parameters, types))


def _fits_one(parameter: str, recorded: str) -> bool:
    if parameter.startswith("*"):
        return recorded not in _TYPES
    return recorded in _TYPES or (parameter.endswith("?") and not recorded)


def _decode(text: str, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise UnknownArguments from None


def _items(text: str) -> list[str]:
    if not (text.startswith("[") and text.endswith("]")):
        raise UnknownArguments
    return [item.strip() for item in text[1:-1].split(",")]


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise UnknownArguments
    return int(text)


def _flag(text: str) -> bool:
    if text not in ("True", "False"):
        raise UnknownArguments
    return text == "True"
