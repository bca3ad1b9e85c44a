"""Constants from the collectives of runs whose network is known, and of recorded ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.integration.real_runs import RealRun, real_runs

from lostflops import Run
from lostflops.account.align import transfer_times
from lostflops.predict.costs.calibration import Calibration
from lostflops.predict.costs.run_samples import learn
from lostflops.testing import Clock, Generated, LostRecords, Model, Network, Straggler, SyntheticCluster, store
from memory_run import MemoryRun
from shared_data import TRACES, needs_traces

NETWORK = Network(alpha=12_000, gbs=100, inter_alpha=25_000, inter_gbs=25)


def learned(
    generated: Generated, folder: Path, *, host_names: bool = True, ranks_per_host: int | None = None
) -> Calibration:
    with Run.open(store(generated, folder, host_names=host_names)) as run:
        return learn(run, ranks_per_host)


def two_hosts(**changes: object) -> SyntheticCluster:
    """Tensor parallel inside hosts of four, data parallel across; a rank that is always late, clocks that disagree."""
    declared = {
        "ranks": 8,
        "ranks_per_host": 4,
        "tensor_parallel": 4,
        "network": NETWORK,
        "stragglers": (Straggler(2, "slow_kernels", factor=1.4),),
        "clocks": {1: Clock(offset=5_000_000)},
    }
    return SyntheticCluster(**{**declared, **changes})  # type: ignore[arg-type]


def test_samples_are_the_transfers_of_the_network_and_no_wait(tmp_path: Path) -> None:
    generated = two_hosts().generate()
    found = learned(generated, tmp_path / "run")
    transfers = Counter((len(one.members), one.bytes, one.transfer) for one in generated.truth.collectives)
    assert Counter((one.ranks, one.bytes, ns) for one in found.collectives for ns in one.ns) == transfers
    assert set(found.samples) == {("all_reduce", "host", 4, 1), ("all_reduce", "across", 2, 2)}
    (note,) = found.notes
    assert note.startswith(f"Learned from {transfers.total()} calls of a run")


def test_sizes_of_several_runs_give_the_constants_of_the_network(tmp_path: Path) -> None:
    parts = [
        learned(two_hosts(model=Model(activation_bytes=size, gradient_bytes=size)).generate(), tmp_path / str(size))
        for size in (2_000, 200_000, 2_000_000, 20_000_000)
    ]
    curves = Calibration(collectives=tuple(one for part in parts for one in part.collectives)).curves
    for level, alpha, beta in (("host", 12e3, 1.5 / 100), ("across", 25e3, 1 / 25)):
        (piece,) = next(curve for key, curve in curves.items() if key[1] == level).pieces
        assert piece.alpha.low <= alpha <= piece.alpha.high
        assert piece.beta.low <= beta <= piece.beta.high
        assert piece.beta.value == pytest.approx(beta, rel=0.02)


def test_transfers_between_stages_are_pairs(tmp_path: Path) -> None:
    cluster = two_hosts(tensor_parallel=2, pipeline_parallel=4, microbatches=4)
    found = learned(cluster.generate(), tmp_path / "run")
    sends = {one.key[1:]: one for one in found.collectives if one.op == "send_recv"}
    inside = sends.pop(("pair.host", 2, 1))
    assert set(inside.ns) == {NETWORK.send(inside.bytes, across_hosts=False)}
    assert not sends, "two hosts' clocks do not agree well enough"
    assert "shorter than the clock error" in " ".join(found.notes)


def test_a_send_is_as_long_as_its_receive() -> None:
    """The sender comes last and is gone when its data is in buffers."""
    (sample,) = (
        Rows("send", durations=(556_000, 56_245_000), waits=(0, 50_000_000), is_transfer=1).learned().collectives
    )
    assert (sample.key, sample.ns) == (("send_recv", "pair.across", 2, 2), (6_245_000,))


@pytest.mark.parametrize(("op", "is_transfer"), [("send", 1), ("broadcast", 0)])
def test_a_call_that_one_had_left_before_the_other_came_tells_nothing(op: str, is_transfer: int) -> None:
    found = Rows(op, durations=(556_000, 40_000), waits=(556_000, 0), is_transfer=is_transfer).learned()
    assert found.collectives == ()
    assert found.notes[1] == "Left out: 1 call that one rank left before another arrived."


def test_calls_that_miss_a_member_are_left_out_and_counted(tmp_path: Path) -> None:
    generated = two_hosts(lost=LostRecords(kernels=0.1)).generate()
    found = learned(generated, tmp_path / "run")
    used = sum(len(one.ns) for one in found.collectives)
    assert 0 < used < len(generated.truth.collectives)
    assert "with members that were not recorded" in " ".join(found.notes)
    truth = {(len(one.members), one.bytes): one.transfer for one in generated.truth.collectives}
    assert all(ns == truth[one.ranks, one.bytes] for one in found.collectives for ns in one.ns)


def test_hosts_that_are_not_named_are_guessed_by_devices_or_told(tmp_path: Path) -> None:
    generated = two_hosts().generate()
    guessed = learned(generated, tmp_path / "guessed", host_names=False)
    assert "does not name its hosts" in guessed.notes[-1]
    assert {key[1:] for key in guessed.samples} == {("host", 4, 1), ("across", 2, 2)}
    told = learned(generated, tmp_path / "told", host_names=False, ranks_per_host=8)
    assert {key[1:] for key in told.samples} == {("host", 4, 1), ("host", 2, 1)}


class Rows(MemoryRun):
    """A run by its rows: two ranks with a device each on two hosts, and one call."""

    def __init__(self, op: str, durations: tuple[int, int], waits: tuple[int, int], **more: int) -> None:
        rows: dict[str, list[dict[str, Any]]] = {
            "ranks": [{"rank": rank, "host": f"host{rank}", "device": "GPU", "device_index": 0} for rank in (0, 1)],
            "lanes": [
                {"rank": rank, "lane": lane, "kind": kind}
                for rank in (0, 1)
                for lane, kind in enumerate(("stream", "thread"))
            ],
            "clocks": [{"rank": rank, "uncertainty": more.get("uncertainty", 0)} for rank in (0, 1)],
            "collectives": [
                {"rank": rank, "event": 7, "group_size": 2, "op": op, "bytes_in": 4096, "start": 0, "stop": dur,
                 "lane": more.get("lane", 0)}
                for rank, dur in enumerate(durations)
            ],
            "arrivals": [
                {"rank": rank, "event": 7, "meeting": 1, "is_transfer": bool(more.get("is_transfer", 0)),
                 "expected": 2, "seen": 2, "wait": wait}
                for rank, wait in enumerate(waits)
            ],
        }  # fmt: skip
        super().__init__(**rows)

    def learned(self) -> Calibration:
        return learn(self)  # type: ignore[arg-type]


def test_a_broadcast_lasts_until_its_last_receiver_has_it() -> None:
    root_leaves_early = Rows("broadcast", durations=(2_000, 50_000), waits=(0, 10_000), uncertainty=5_000)
    (sample,) = root_leaves_early.learned().collectives
    assert sample.ns == (40_000,)


def test_a_broadcast_that_is_shorter_than_clocks_are_certain_is_left_out() -> None:
    found = Rows("broadcast", durations=(2_000, 50_000), waits=(0, 10_000), uncertainty=45_000).learned()
    assert found.collectives == ()
    assert found.notes[1] == "Left out: 1 call shorter than the clock error."


@pytest.mark.parametrize(
    ("op", "ns"),
    [*((op, 40_000) for op in ("broadcast", "reduce", "gather", "scatter")), ("all_reduce", 2_000)],
)
def test_costs_and_analyses_agree_on_a_transfer(op: str, ns: int) -> None:
    """A sender leaves after 2 us, the other 40 us after the last arrival. No rank leaves a barrier early."""
    rows = Rows(op, durations=(2_000, 50_000), waits=(0, 10_000))
    (sample,) = rows.learned().collectives
    (group,) = transfer_times.transfers(rows, "")  # type: ignore[arg-type]
    assert (sample.ns, [one for _, one in group.points]) == ((ns,), [ns])


def test_a_barrier_needs_no_clock() -> None:
    (sample,) = Rows("all_reduce", durations=(50_000, 20_000), waits=(0, 0), uncertainty=10**9).learned().collectives
    assert (sample.key, sample.ns) == (("all_reduce", "across", 2, 2), (20_000,))


def test_collectives_of_the_host_are_not_taken_for_those_of_accelerators() -> None:
    found = Rows("all_reduce", durations=(50_000, 20_000), waits=(0, 0), lane=1).learned()
    assert found.collectives == ()
    assert found.notes[1] == "Left out: 1 call on the host of a job that uses accelerators."


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    return real_runs(tmp_path_factory)


@needs_traces
def test_eight_recorded_ranks_teach_the_bandwidth_of_their_links(real_run: RealRun) -> None:
    files = sorted(TRACES.glob("KellerJordan__modded-nanogpt/2025-12-11*/*.gz"))
    with Run.open(real_run(*files)) as run:
        found = learn(run)
        longest = run.sql("select max(stop - start) from collectives where bytes_out = 150994944").fetchall()[0][0]
    gathered = found.samples["all_gather", "host", 8, 1]
    assert {150_994_944, 77_266_944} <= set(gathered)
    # NVLink of an H100 carries 450 GB/s each way; waits in these calls reach milliseconds.
    assert all(200 < 7 / 8 * 150_994_944 / ns < 450 for ns in gathered[150_994_944])
    assert longest > 7 * max(gathered[150_994_944])


@needs_traces
def test_a_recorded_run_without_sizes_teaches_nothing(real_run: RealRun) -> None:
    files = sorted(TRACES.glob("astra-sim__astra-sim/megatron-tp8/*kineto*"))
    with Run.open(real_run(*files)) as run:
        found = learn(run)
    assert found.collectives == ()
    assert "84 calls without a recorded operation or size" in found.notes[1]
