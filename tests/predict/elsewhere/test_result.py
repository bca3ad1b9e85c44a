from __future__ import annotations

from lostflops.account.facts.devices import find_device
from lostflops.account.ledger.bound import WORDS, Bound
from lostflops.core.results import Pairs
from lostflops.predict.elsewhere.forecast import Forecast, Forecasts, Refused
from lostflops.predict.elsewhere.result import WorkPerStep, show_devices

GIB = 1 << 30


def forecast(name: str, step: float, *, is_now: bool = False) -> Forecast:
    device = find_device(name)
    assert device is not None
    bound = Bound({word: float(word == "compute") for word in WORDS})
    return Forecast(device=device, step=step, low=step, high=step, own=1.0, bound=bound, is_now=is_now)


def forecasts(*made: Forecast, peak: int | None = None, refused: tuple[Refused, ...] = ()) -> Forecasts:
    return Forecasts(
        measured=1e6,
        now="the A100-SXM4-80GB of this run",
        ranks=1,
        made=made,
        refused=refused,
        peak=peak,
        memory_note="the recorded peak",
        baseline=Pairs("baseline", "", ()),
        notes=(),
    )


NOW = forecast("A100-SXM4-80GB", 1e6, is_now=True)
UNKNOWN = WorkPerStep(None, None)


def test_no_device_is_called_fastest_if_all_others_are_too_small() -> None:
    found = show_devices(forecasts(NOW, forecast("L40S", 5e5), peak=60 * GIB), None, UNKNOWN)
    assert found.verdict == (
        "No other known device can run this job as it is: on the A100-SXM4-80GB of this run it takes 1.00 ms per step "
        "(90% interval 1.00 to 1.00)."
    )


def test_a_reason_keeps_names_that_begin_like_the_device() -> None:
    refused = Refused(device="A10", reason="no confirmed fp32 peak of A10G is known; known peaks: bf16, fp16")
    shown = show_devices(forecasts(NOW, forecast("L4", 2e6), refused=(refused,)), None, UNKNOWN).to_json()
    assert shown["left_out"] == [
        {"devices": "A10", "reason": "no confirmed fp32 peak of A10G is known", "names": ["A10"]}
    ]


def test_no_device_is_called_fastest_if_several_share_the_shortest_step() -> None:
    made = [forecast(name, 5e5) for name in ("P4", "T4", "L4", "B200", "H20")]
    found = show_devices(forecasts(NOW, *made, forecast("A10", 6e5)), None, UNKNOWN)
    assert found.verdict == (
        "5 devices share the shortest predicted step: 500 us per step (90% interval 500 to 500), 2x as fast as the "
        "A100-SXM4-80GB of this run. They are P4, T4, L4, B200 and 1 more."
    )
