"""Code of Lostflops that dynamo must not trace: it would cost a compilation, or break a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def skip_tracing(*functions: Callable[..., Any], with_callees: bool = False) -> None:
    """Make dynamo run functions untraced; what they call is traced as usual, unless it is ours too (`with_callees`)."""
    frames = torch._C._dynamo.eval_frame  # noqa: SLF001 - torch.compiler.disable would import all of dynamo
    for function in functions:
        code = function.__code__
        if hasattr(frames, "set_code_exec_strategy"):
            action = frames._FrameAction  # noqa: SLF001
            inner = action.SKIP if with_callees else action.DEFAULT
            frames.set_code_exec_strategy(code, frames._FrameExecStrategy(action.SKIP, inner))  # noqa: SLF001
        elif hasattr(frames, "skip_code"):
            frames.skip_code(code)
