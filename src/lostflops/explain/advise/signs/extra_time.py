"""Extra time of some steps compared with others, as a saving with a range."""

from __future__ import annotations

from math import hypot, sqrt
from typing import TYPE_CHECKING

from lostflops.account.pace.blocks import typical
from lostflops.core.estimate import Estimate, Kind
from lostflops.core.stats import t_quantile
from lostflops.predict.whatif.interval import CONFIDENCE, noise_of

if TYPE_CHECKING:
    from lostflops.explain.advise.signs.series import Values


def saving_of_first_steps(ns: Values) -> Estimate:
    """Return what is saved if all steps take the time of the first third. Both times are typical ones: what makes some
    steps long, such as a checkpoint, is no growth."""
    first, whole = typical(ns[: ns.size // 3]), typical(ns)
    part = first.value / whole.value
    reach = hypot(noise_of(first), noise_of(whole)) * part
    return Estimate.measured(max(1 - part, 0.0), reach, "the step time of the first third")


def saving_of_extra_time(extra: Values, whole: float, source: str) -> Estimate:
    """Return what is saved without the extra time of some steps, as a part of `whole`, the time of all steps; its range
    comes from how much the extra time of these steps varies, and is not known of a single step."""
    share = min(float(extra.sum()) / whole, 1.0)
    if extra.size < 2:
        return Estimate.bound(share, source)
    reach = t_quantile(CONFIDENCE, extra.size - 1.0) * float(extra.std(ddof=1)) * sqrt(extra.size) / whole
    return Estimate(share, max(share - reach, 0.0), min(share + reach, 1.0), Kind.MEASURED, source)
