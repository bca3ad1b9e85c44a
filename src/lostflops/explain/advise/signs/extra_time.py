"""Extra time of some steps compared with others, as a saving with a range."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from lostflops.account.pace.blocks import typical
from lostflops.core.estimate import Estimate
from lostflops.predict.costs.quantiles import t_quantile
from lostflops.predict.whatif.interval import CONFIDENCE, noise_of

if TYPE_CHECKING:
    from lostflops.explain.advise.signs.series import Values


def saving_of_first_steps(ns: Values) -> Estimate:
    """Return what is saved if all steps take the time of the first third, which is known as well as its steps agree."""
    first, whole = typical(ns[: ns.size // 3]), float(ns.mean())
    share = max(1 - first.value / whole, 0.0)
    return Estimate.measured(share, noise_of(first) * first.value / whole, "the step time of the first third")


def saving_of_extra_time(extra: Values, whole: float, source: str) -> Estimate:
    """Return what is saved without the extra time of some steps, as a part of `whole`, the time of all steps; its range
    comes from how much the extra time of these steps varies."""
    share = min(float(extra.sum()) / whole, 1.0)
    reach = t_quantile(CONFIDENCE, extra.size - 1.0) * float(extra.std(ddof=1)) * sqrt(extra.size) / whole
    return Estimate.measured(share, min(reach, share), source)
