"""On which device would this run be fastest, and on which cheapest?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lostflops.account.pace.timings import choose_pace, paces
from lostflops.predict.elsewhere.computed import forecast_computed
from lostflops.predict.elsewhere.recorded import forecast_recorded
from lostflops.predict.elsewhere.result import WorkPerStep, show_devices
from lostflops.predict.graph.tasks import LaneKind
from lostflops.predict.whatif.baseline import baseline

if TYPE_CHECKING:
    from lostflops.account.ledger.mfu import Claims
    from lostflops.core.results import Result
    from lostflops.predict.elsewhere.prices import Prices
    from lostflops.predict.whatif.run_facts import LearnTimes
    from lostflops.store.run import Run


def devices(
    run: Run,
    prices: Prices | None,
    said: Claims,
    times: LearnTimes | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Predict the run on every known device. `said` has the tokens and samples of a step, if the user gave them."""
    start = baseline(run, times)
    is_on_device = (start.graph.lanes.kind == LaneKind.STREAM).any()
    found = (forecast_recorded if is_on_device else forecast_computed)(run, start, progress)
    return show_devices(found, prices, _work(run, said, start.measured))


def _work(run: Run, said: Claims, step_ns: float) -> WorkPerStep:
    """Return the work of a step as the user says, else as the collector counted it."""
    pace = choose_pace(paces(run))
    tokens, samples = said.tokens, said.samples
    if pace is not None and tokens is None and pace.tokens_per_second:
        tokens = pace.tokens_per_second * step_ns / 1e9
    if pace is not None and samples is None and pace.samples_per_second:
        samples = pace.samples_per_second * step_ns / 1e9
    return WorkPerStep(tokens, samples)
