"""Is the program compiled already? Then a rule must not advise to compile it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.collect.capture import COMPILATION
from lostflops.explain.advise.case import once_per_case

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_SEEN: Final = f"""
    select exists (select 1 from job where key = '{COMPILATION}') or exists (
        select 1 from events
        where starts_with(name, 'Torch-Compiled Region') or starts_with(name, 'CompiledFunction')
           or starts_with(name, '## Call CompiledFxGraph') or starts_with(name, 'triton_'))"""
"""What dynamo and inductor write into traces, and what the collector records of them."""
_BREAKS: Final = "Run with TORCH_LOGS=graph_breaks: it names the lines that are left out of compiled regions."


@once_per_case
def is_compiled(case: Case) -> bool:
    """Return whether parts of the program run compiled by torch.compile."""
    ((seen,),) = case.run.rows(_SEEN)
    return bool(seen)


def advise_compiling(case: Case, advice: str, *, graphs: bool = False) -> str:
    """Return the advice to compile; for a program that is compiled already what is left to do, with `graphs` for its
    launches."""
    if not is_compiled(case):
        return advice
    replay = ' With mode="reduce-overhead", torch.compile replays regions as CUDA graphs.' if graphs else ""
    return f"Parts of the program are compiled already. {_BREAKS}{replay}"
