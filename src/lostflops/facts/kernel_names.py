"""Names of kernels as people can read them in a column."""

from typing import Final

_LONGEST: Final = 40


def short(name: str, longest: int = _LONGEST) -> str:
    """A name, cut to what fits a column.

    >>> short("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>")
    'at::native::vectorized_elementwise_ke...'
    """
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return name if len(name) <= longest else name[: longest - 3] + "..."
