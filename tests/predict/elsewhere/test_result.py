from dataclasses import replace

import pytest

from lostflops.account.facts.devices import find_device
from lostflops.account.ledger.bound import WORDS, Bound
from lostflops.core.results import Pairs, Result
from lostflops.predict.elsewhere.forecast import Forecast, Forecasts, Refused
from lostflops.predict.elsewhere.result import WorkPerStep, show_devices

MS = 1e6
GIB = 1 << 30


def forecast(name: str, step_ms: float, *, own_ms: float = 1, limit: str = "compute", is_now: bool = False) -> Forecast:
    device = find_device(name)
    assert device is not None
    return Forecast(
        device=device,
        step=step_ms * MS,
        low=0.8 * step_ms * MS,
        high=1.2 * step_ms * MS,
        own=own_ms * MS,
        bound=Bound({word: float(word == limit) for word in WORDS}),
        is_now=is_now,
    )


def show(*made: Forecast, refused: tuple[Refused, ...] = (), peak: int | None = None, measured: float = 100) -> Result:
    found = Forecasts(
        measured=measured * MS,
        now="the H100-SXM5 of this run",
        ranks=1,
        made=made,
        refused=refused,
        peak=peak,
        memory_note="the recorded peak of rank 0",
        baseline=Pairs("baseline", "", ()),
        notes=(),
    )
    return show_devices(found, None, WorkPerStep(None, None))


NOW = forecast("H100-SXM5", 100, is_now=True)


def test_a_clear_winner_is_the_fastest_with_its_probability() -> None:
    assert show(NOW, forecast("B200", 50), forecast("H200-SXM", 80)).verdict == (
        "B200 is the fastest with probability >99%: 50.0 ms per step (40.0 to 60.0), 2x as fast as the "
        "H100-SXM5 of this run. H200-SXM is second."
    )


def test_devices_that_may_be_as_fast_are_named_that_of_the_run_before_others() -> None:
    wide = [forecast(name, step, own_ms=30) for name, step in (("B200", 98), ("H200-SXM", 99), ("GB200", 99.5))]
    verdict = show(replace(NOW, own=30 * MS), *wide).verdict
    assert verdict.startswith("B200 has the shortest predicted step: 98.0 ms per step (78.4 to 118), 1.02x")
    assert verdict.endswith(" only: H100-SXM5 (now), H200-SXM and GB200 may be as fast.")


def test_the_device_of_the_run_may_be_the_fastest() -> None:
    assert show(NOW, forecast("A100-SXM4-80GB", 200)).verdict == (
        "No known device is predicted to be faster than the H100-SXM5 of this run: 100 ms per step (80.0 "
        "to 120). It is the fastest with probability >99%; A100-SXM4-80GB is second."
    )


def test_if_the_host_limits_the_job_devices_are_equally_fast() -> None:
    made = [forecast(name, 100, limit="host", is_now=name == "H100-SXM5") for name in ("H100-SXM5", "B200", "L4")]
    assert show(*made).verdict == (
        "The host limits the job, so 3 devices may be equally fast, the H100-SXM5 of this run among them: 100 ms per "
        "step (80.0 to 120). Choose by price."
    )


def test_if_kernels_are_hidden_devices_are_equally_fast() -> None:
    made = [replace(forecast(name, 50), floor=50 * MS) for name in ("B200", "H200-SXM", "GB200")]
    assert show(NOW, *made).verdict == (
        "Faster kernels would not shorten the step, so 3 devices may be equally fast: 50.0 ms per step ("
        "40.0 to 60.0), 2x as fast as the H100-SXM5 of this run. Choose by price."
    )


def test_no_device_is_likely_to_be_faster_if_that_of_the_run_is_the_most_likely() -> None:
    made = [forecast(name, 99.9, own_ms=5) for name in ("B200", "GB200")]
    verdict = show(replace(NOW, own=15 * MS), *made).verdict
    assert verdict.startswith(
        "No known device is likely to be faster than the H100-SXM5 of this run, which is the fastest with probability "
    )
    assert verdict.endswith(": B200 has the shortest predicted step, 99.9 ms per step (79.9 to 120).")


def test_without_another_device_there_is_an_error_with_the_most_frequent_reasons() -> None:
    refused = (Refused(device="L4", reason="x"), Refused(device="T4", reason="y"), Refused(device="P4", reason="y"))
    with pytest.raises(Exception, match=r"cannot be predicted on any other device: y \(2 devices\); x \(1 device\)$"):
        show(NOW, refused=refused)


@pytest.mark.parametrize(
    ("gib", "says"),
    [
        (5, "Memory: this job needs 5 GiB per device (the recorded peak of rank 0); libraries need more."),
        (40, "libraries need more. Nearly full: L40S (90%). Check that it fits, as their capacity is not known: A40."),
    ],
)
def test_memory_is_noted_where_a_job_may_not_fit(gib: int, says: str) -> None:
    result = show(NOW, forecast("L40S", 150), forecast("A40", 200), peak=gib * GIB)
    (note,) = [note for note in result.notes if note.startswith("Memory")]
    assert note.endswith(says)


def test_devices_that_are_too_small_are_not_ranked() -> None:
    (left_out,) = show(NOW, forecast("B200", 50), forecast("L4", 150), peak=40 * GIB).to_json()["left_out"]
    assert left_out["names"] == ["L4"]
    assert left_out["reason"] == "too small: it has 22.0 GiB, the job needs 40.0 GiB"


def test_no_device_is_called_fastest_if_all_others_are_too_small() -> None:
    assert show(NOW, forecast("L40S", 50), peak=60 * GIB).verdict == (
        "No other known device can run this job as it is: on the H100-SXM5 of this run it takes 100 ms per step ("
        "80.0 to 120)."
    )


def test_a_reason_keeps_names_that_begin_like_the_device() -> None:
    refused = Refused(device="A10", reason="no confirmed fp32 peak of A10G is known; known peaks: bf16, fp16")
    assert show(NOW, forecast("L4", 200), refused=(refused,)).to_json()["left_out"] == [
        {"devices": "A10", "reason": "no confirmed fp32 peak of A10G is known", "names": ["A10"]}
    ]


def test_no_device_is_called_fastest_if_several_share_the_shortest_step() -> None:
    made = [forecast(name, 50) for name in ("P4", "T4", "L4", "B200", "H20", "GB200")]
    assert show(NOW, *made, forecast("A10", 60)).verdict == (
        "P4, T4, L4, B200 and 2 more share the shortest predicted step: 50.0 ms per step (40.0 to 60.0), "
        "2x as fast as the H100-SXM5 of this run. Choose by price."
    )


def test_two_devices_that_wait_for_the_host_are_equally_fast() -> None:
    made = [forecast(name, 50, limit="host") for name in ("B200", "GB200")]
    assert show(NOW, *made).verdict == (
        "The host limits the job, so 2 devices may be equally fast: 50.0 ms per step (40.0 to 60.0), 2x "
        "as fast as the H100-SXM5 of this run. Choose by price."
    )
