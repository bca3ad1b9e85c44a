"""The code that wraps modules so that their forward is run again."""

from __future__ import annotations

from collections.abc import Sequence


def code(modules: Sequence[str]) -> str:
    """Return the code that wraps these modules.

    >>> print(code(["layers.0", "head"]))
    from functools import partial
    from torch.utils.checkpoint import checkpoint
    for name in ("layers.0", "head"):
        module = model.get_submodule(name)
        module.forward = partial(checkpoint, module.forward, use_reentrant=False)
    """
    names = ", ".join(f'"{name}"' for name in modules) + ("," if len(modules) == 1 else "")
    return (
        "from functools import partial\n"
        "from torch.utils.checkpoint import checkpoint\n"
        f"for name in ({names}):\n"
        "    module = model.get_submodule(name)\n"
        "    module.forward = partial(checkpoint, module.forward, use_reentrant=False)"
    )
