"""Figures of docs/explanation/what-teaching-gets-wrong.md, computed."""

from __future__ import annotations

import math
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from lostflops.explain.analyze.report import report
from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.testing import write_captured
from lostflops.testing.demo import demo_cluster

PAGE = Path(__file__).parent.parent / "docs/explanation/what-teaching-gets-wrong.md"
PARTS = [part.split("\n", 1) for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]]
SECTIONS = {heading: " ".join(text.split()) for heading, text in PARTS}
H, LAYERS, TOKENS, WORDS = 4096, 32, 2048, 32_000
PARAMETERS = 6.74e9


def says(heading: str, *figures: str) -> None:
    section = SECTIONS[heading]
    for figure in figures:
        assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d])", section), f"{heading}: {figure} is not there"


def test_flops_of_a_token_are_counted_twice() -> None:
    theirs = 6 * (LAYERS * (5 * H**2 + 4 * TOKENS * H + 16 * H**2) + 2 * WORDS * H)
    right = 3 * (LAYERS * (24 * H**2 + 4 * TOKENS * H) + 2 * WORDS * H)
    says("FLOPs counted twice", f"{theirs / right:.2f} times")


def test_the_table_contradicts_itself() -> None:
    work = 6 * PARAMETERS * 4 * TOKENS
    says("A table against itself", f"{450 / 989:.1%}", f"{work / 1e12:.0f} TFLOP", f"{work / 450e12 * 1e3:.0f} ms")
    assert round(work / 0.180 / 1e12, -1) == 1840
    says("A table against itself", "1,840 TFLOP/s", f"{work / 0.180 / 989e12:.1f} times")


def test_attention_has_flops_and_no_parameters() -> None:
    share = {tokens: 12 * LAYERS * tokens * H / (6 * PARAMETERS) for tokens in (TOKENS, 32_768)}
    says("Six FLOPs per parameter and token", f"{share[TOKENS]:.1%}", f"{share[32_768]:.0%}")
    assert 1 / (1 + share[32_768]) < 0.5


def test_recomputing_forward_adds_a_third() -> None:
    forward, backward = 1, 2
    ratio = (2 * forward + backward) / (forward + backward)
    assert ratio == pytest.approx(4 / 3)
    says("Recomputation that doubles the work", "4/3", f"{2.0 / ratio:.1f} times", f"{0.40 * 2.0 / ratio:.0%}")


def test_a_low_peak_makes_a_high_mfu() -> None:
    says("A careful guess of the peak", f"{0.30 * 989 / 100:.0%}")


@pytest.mark.slow
def test_devices_of_the_demo_are_busy(tmp_path: Path) -> None:
    write_captured(demo_cluster(8), tmp_path / "capture")
    ingest([tmp_path / "capture"], tmp_path / "run", workers=1)
    busy = whole = 0
    with Run.open(tmp_path / "run") as run:
        for rank, began, stop in run.sql(
            "select rank, min(device_start), max(device_stop) from steps group by rank"
        ).fetchall():
            whole += stop - began
            at = began
            for start, end in run.sql(
                "select start, start + dur from events where kind in ('kernel', 'comm', 'memcpy', 'memset') "
                f"and rank = {rank} order by start"
            ).fetchall():
                busy += max(0, min(end, stop) - max(start, at))
                at = max(at, end)
        found = re.match(r"MFU is (\S+%)\. 8 ranks (compute for \S+%)", report(run).verdict)
    assert found
    says("Busy devices", f"{busy / whole:.1%}", *found.groups())


def test_a_timer_without_the_batch() -> None:
    waiting, work = 30, 70
    says("A timer that starts after the batch has come", f"{(waiting + work) / work:.2f} times")


def test_synchronising_adds_what_was_hidden() -> None:
    def end(synchronised: bool) -> int:
        host = device = 0
        for _ in range(1000):
            host += 10
            device = max(host, device) + 12
            host = device if synchronised else host
        return device

    says("Synchronising to see", f"{end(False) / 1000:.2f} ms", f"{end(True) / 1000:.0f} ms")


def efficiency(compute: float, comm: float, total: float) -> float:
    return 1 - (total - max(compute, comm)) / min(compute, comm)


def test_overlap_by_sums() -> None:
    says("Overlap as a formula of three sums", f"{efficiency(60, 20, 60 + 30):.0%}", f"{efficiency(15, 20, 24):.0%}")


def test_bandwidth_with_waiting() -> None:
    says("Bandwidth that includes waiting", f"{0.1 / 0.008:.1f} GB/s", f"{0.1 / 0.002:.0f}")


def test_a_ring_sends_more_than_the_tensor() -> None:
    factor = 2 * (8 - 1) / 8
    on_link = 1.0 * factor / 0.100
    says("Bytes of the tensor over the rate of the link", f"{factor:.2f}", f"{on_link} GB/s", f"{on_link / 12.5:.0%}")
    says("Bytes of the tensor over the rate of the link", f"{factor / 12.5 * 1000:.0f} ms")


def test_constants_of_whole_collectives_are_not_those_of_links() -> None:
    latency, rate, ranks = 20e-6, 50e9, 8

    def ratio(size: float) -> float:
        predicted = 2 * (ranks - 1) * latency + 2 * (ranks - 1) / ranks * size / rate
        return predicted / (latency + size / rate)

    says("Latency and bandwidth used twice", f"{ratio(1024):.1f} times", f"{ratio(1e12):.2f} times")


@pytest.mark.parametrize(("factor", "told"), [(1.02, "7.9 us"), (0.98, "32.1 us"), (1.05, "-10.2 us")])
def test_a_line_through_all_sizes_tells_no_latency(factor: float, told: str) -> None:
    sizes = np.logspace(10, 30, 20, base=2)
    times = 20e-6 + sizes / 50e9
    times[-1] *= factor
    line = np.column_stack([np.ones_like(sizes), sizes])
    found = np.linalg.lstsq(line, times, rcond=None)[0]
    assert f"{found[0] * 1e6:.1f} us" == told
    assert 1 - np.var(times - line @ found) / np.var(times) > 0.999
    assert told in SECTIONS["A latency fitted at a gigabyte"]


def test_buckets_hold_whole_parameters() -> None:
    torch = pytest.importorskip("torch")
    gradients = [torch.empty(shape, device="meta") for _ in range(20) for shape in ((4096,), (4096, 4096))]
    made = [
        torch._C._distributed_c10d._compute_bucket_assignment_by_size(gradients, [cap * 2**20])[0]
        for cap in (1, 5, 10, 25, 50)
    ]
    assert all(one == made[0] for one in made)
    says(
        "Bucket sizes below the size of a parameter",
        f"{4096 * 4096 * 4 / 2**20:.0f} MiB",
        f"same {len(made[0])} buckets",
    )


def test_steps_are_equal_and_collectives_are_not() -> None:
    ready, transfer = (10, 16), 2
    done = max(ready) + transfer
    quick, slow = (done - one for one in ready)
    says("The late rank by its step time", f"{done} ms", f"{quick} ms")
    assert slow == 2


def test_scores_of_few_ranks() -> None:
    def score(times: list[float]) -> float:
        return float((max(times) - np.mean(times)) / np.std(times))

    assert score([1.0] * 7 + [1.000001]) == pytest.approx(score([1.0] * 7 + [2.0]), rel=1e-3)
    says(
        "Two standard deviations of few ranks", f"{score([1.0] * 7 + [2.0]):.2f}", f"{score([1.0] * 6 + [2.0] * 2):.2f}"
    )
    assert max(score([1.0] * (n - 1) + [9.0]) for n in range(2, 6)) <= 2 + 1e-9
    assert score([1.0] * 7 + [2.0]) == pytest.approx(math.sqrt(7))
    assert 1.1 * np.mean([1.0, 1.2]) > 1.2


def test_a_barrier_is_left_together() -> None:
    entered, left = np.array([0.0, 50.0]), np.array([52.0, 52.0])
    says("Clocks aligned where a barrier begins", f"{entered[1] - entered[0]:.0f} ms")
    assert left[1] - left[0] == 0


def test_the_shell_knows_no_rank_yet() -> None:
    environment = {"PATH": os.environ["PATH"]}
    said = subprocess.run(
        ["sh", "-c", "echo trace_rank${RANK}"], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout == "trace_rank\n"


def test_columns_concatenate_and_rows_sum() -> None:
    generator = np.random.default_rng(0)
    given, weight = generator.normal(size=(4, 6)), generator.normal(size=(6, 8))
    columns = [given @ part for part in np.split(weight, 2, axis=1)]
    rows = [part @ own for part, own in zip(np.split(given, 2, axis=1), np.split(weight, 2, axis=0), strict=True)]
    np.testing.assert_allclose(np.concatenate(columns, axis=1), given @ weight)
    np.testing.assert_allclose(rows[0] + rows[1], given @ weight)
    assert rows[0].shape == (4, 8)


def test_what_zero_communicates() -> None:
    scatter = gather = 1
    data_parallel = scatter + gather
    says(
        "What ZeRO communicates",
        f"{(scatter + gather) / data_parallel:.1f} times",
        f"{(scatter + 2 * gather) / data_parallel} times",
    )


def test_the_bubble_of_unequal_stages() -> None:
    def idle(stages: list[float], microbatches: int) -> float:
        ends = [0.0] * len(stages)
        for _ in range(microbatches):
            came = 0.0
            for number, time in enumerate(stages):
                came = ends[number] = max(came, ends[number]) + time
        return 1 - microbatches * sum(stages) / (len(stages) * ends[-1])

    assert idle([1, 1, 1, 1], 8) == pytest.approx(3 / 11)
    says("The bubble of equal stages", f"{3 / 11:.1%}", f"{idle([1, 1, 1, 1.5], 8):.1%}")


def test_a_cache_is_no_fragmentation() -> None:
    says("Free memory called fragmentation", f"{1 - 2 / 10:.0%}")


def test_gradients_come_as_activations_go() -> None:
    parameters, gradients, states, activations = 28, 28, 56, 64
    through = np.linspace(0, 1, 33)
    peak = (parameters + states + activations * (1 - through) + gradients * through).max()
    whole = parameters + gradients + states + activations
    says("The peak as a sum of everything", f"{whole} GB", f"{peak:.0f} GB", f"{whole / peak - 1:.0%}")
    says("The peak as a sum of everything", f"{34 * 4 * TOKENS * H * LAYERS / 1e9:.1f} GB")


@pytest.mark.parametrize(("kept", "told"), [(0.0, "5%"), (0.5, "26%"), (0.8, "54%")])
def test_a_t_test_takes_steps_for_independent(kept: float, told: str) -> None:
    generator, steps, warm_up, trials = np.random.default_rng(0), 10, 60, 20_000
    noise = generator.normal(size=(steps + warm_up, trials, 2))
    deviation = np.zeros((steps + warm_up, trials, 2))
    for step in range(1, steps + warm_up):
        deviation[step] = kept * deviation[step - 1] + noise[step]
    settled = deviation[warm_up:]
    error = np.sqrt(settled.var(axis=0, ddof=1).sum(axis=1) / steps)
    statistic = (settled.mean(axis=0) @ np.array([1.0, -1.0])) / error
    two_sided_5_percent_of_18 = 2.1009
    wrong = float((np.abs(statistic) > two_sided_5_percent_of_18).mean())
    assert wrong == pytest.approx(float(told.rstrip("%")) / 100, abs=0.01)
    assert told in SECTIONS["Ten steps and a t-test"]
