"""Readable names of kernels that fit a column."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

_LONGEST: Final = 40
_MARK: Final = "..."
_NOISE: Final = re.compile(r"^void |\(anonymous namespace\)::|\b(?:at::native|at|c10)::")


def short(name: str, longest: int = _LONGEST) -> str:
    """Return a name cut in its middle to fit a column: kernels of one family differ in their last letters.

    >>> short("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>")
    'vectorized_elementwise_ke..._add<float>>'
    """
    name = _NOISE.sub("", name)
    if len(name) <= longest:
        return name
    tail = (longest - len(_MARK)) // 3
    return name[: longest - len(_MARK) - tail] + _MARK + name[-tail:]


def short_apart(names: Sequence[str], longest: int = _LONGEST) -> list[str]:
    """Return short names that differ if the names do: names that would look the same are cut less.

    >>> short_apart(["kernel_of_type_<float, 16>_and_more", "kernel_of_type_<float, 32>_and_more"], 20)
    ['kernel_of_type_<float, 16>_and_more', 'kernel_of_type_<float, 32>_and_more']
    """
    cut = [short(name, longest) for name in names]
    shared = Counter(text for text, _ in set(zip(cut, names, strict=True)))
    if not any(shared[text] > 1 for text in cut) or longest > max(map(len, names)):
        return cut
    longer = short_apart(names, 2 * longest)
    return [other if shared[text] > 1 else text for text, other in zip(cut, longer, strict=True)]
