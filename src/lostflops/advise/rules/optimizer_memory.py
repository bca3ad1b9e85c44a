"""Memory is nearly full, and much of it is optimizer state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.advise.claim import Claim, Gain, Rule
from lostflops.advise.signs.fullness import fullness
from lostflops.memory.owners import Owner
from lostflops.results import Evidence
from lostflops.units import format_bytes, format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case

_MUCH: Final = 0.4
"""Share of the peak from which it is what memory is short of."""


def _find(case: Case) -> Iterator[Claim]:
    found = fullness(case)
    share = found.share(Owner.OPTIMIZER)
    if share < _MUCH or not found.is_short():
        return
    state = found.owners[Owner.OPTIMIZER]
    parameters = found.owners.get(Owner.PARAMETERS, 0)
    times = f", {state / parameters:.2g} times what parameters take" if parameters else ""
    yield Claim(
        cause="optimizer_memory",
        what=f"Memory is nearly full, and {format_share(share)} of it is state of the optimizer.",
        taken={},
        evidence=(
            Evidence(found.says, ranks=(found.rank,), steps=() if found.step is None else (found.step,)),
            Evidence(f"its state is {format_bytes(state)}{times}", ranks=(found.rank,)),
        ),
        confidence=0.95,
        certain_if="add up the sizes of the tensors in optimizer.state.",
        fix=_fix(case),
        gain=Gain(0.0, 0.0, 0.0, "it costs no time until memory runs out"),
        is_warning=True,
    )


def _fix(case: Case) -> str:
    rows = case.run.sql("select max(world_size) from ranks").fetchall()
    eight = "8-bit state: bitsandbytes.optim.AdamW8bit(model.parameters(), ...), a quarter of its size in fp32"
    if (rows[0][0] or 1) == 1:
        return f"{eight}; fused=True, which needs no temporaries of the size of the parameters"
    return (
        "torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, ...), which splits the "
        "state among ranks (lostflops whatif RUN --change zero=1 predicts its time), or "
        f"torch.distributed.fsdp.fully_shard(model). Or {eight}."
    )


RULE: Final = Rule(
    cause="optimizer_memory",
    about=(
        "Adam keeps two numbers for each parameter, in mixed precision also a copy of it: most of a model's memory "
        "before its first batch. All ranks of a data-parallel job keep the same. It matters if the device is nearly "
        "full."
    ),
    find=_find,
)
