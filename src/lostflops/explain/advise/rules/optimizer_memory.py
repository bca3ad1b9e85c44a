"""Memory is nearly full, and much of it is optimizer state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.account.memory.owners import Owner
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.fullness import fullness

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_MUCH: Final = 0.4
"""Optimizer state must be at least this share of the peak memory."""


def _find(case: Case) -> Iterator[Claim]:
    found = fullness(case)
    share = found.share(Owner.OPTIMIZER)
    if share < _MUCH or not found.is_short():
        return
    state = found.owners[Owner.OPTIMIZER]
    parameters = found.owners.get(Owner.PARAMETERS, 0)
    times = f", {state / parameters:.2g} times the parameters" if parameters else ""
    yield Claim(
        cause="optimizer_memory",
        what=f"Memory is nearly full; {format_share(share)} of it is optimizer state.",
        taken={},
        evidence=(
            Evidence(found.says, ranks=(found.rank,), steps=() if found.step is None else (found.step,)),
            Evidence(f"optimizer state takes {format_bytes(state)}{times}", ranks=(found.rank,)),
        ),
        strength=Strength.STRONG,
        certain_if="add up the sizes of the tensors in optimizer.state.",
        fix=_fix(case),
    )


def _fix(case: Case) -> str:
    rows = case.run.rows("select max(world_size) from ranks")
    eight = "bitsandbytes.optim.AdamW8bit(model.parameters(), ...), whose state is a quarter of fp32 state"
    if (rows[0][0] or 1) == 1:
        return f"Use {eight}. Set fused=True, which needs no temporaries as large as the parameters."
    return (
        "Shard the state over ranks: torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), "
        "torch.optim.AdamW, ...) (predict its time with lostflops whatif RUN --change zero=1) or "
        f"torch.distributed.fsdp.fully_shard(model). Or use {eight}."
    )


RULE: Final = Rule(
    cause="optimizer_memory",
    about=(
        "Adam stores two numbers per parameter, and in mixed precision a copy of it as well: most of a model's memory "
        "before the first batch. In a data-parallel job all ranks store the same state. It is a problem only if the "
        "device is nearly full."
    ),
    find=_find,
)
