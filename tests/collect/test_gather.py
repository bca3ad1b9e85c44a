"""One writer per host: frames travel whole, traces once, requests down."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from lostflops.collect import gather
from lostflops.collect.capture import (
    WindowRequest,
    frame_bytes,
    host_file,
    rank_file,
    read_frames,
    request_file,
    trace_file,
)
from lostflops.collect.gather import Gatherer, is_shared
from lostflops.collect.placing import lock_of
from lostflops.collect.window_plan import publish


def frame(rank: int, first: int) -> bytes:
    return frame_bytes(rank, f"s{rank}", first, 0, [{"kind": "note", "what": "x", "count": first, "reason": ""}])


def test_whole_frames_of_all_ranks_go_into_the_file_of_the_host(tmp_path: Path) -> None:
    spool, capture = tmp_path / "spool", tmp_path / "capture"
    spool.mkdir()
    capture.mkdir()
    gatherer = Gatherer(spool, capture, "node 7")
    whole = [frame(rank, 0) for rank in (0, 1)]
    torn = frame(0, 1)
    rank_file(spool, 0).write_bytes(whole[0] + torn[:30])
    rank_file(spool, 1).write_bytes(whole[1])
    gatherer.gather()
    gatherer.gather()
    frames, damaged = read_frames(host_file(capture, "node 7"))
    assert [(f.rank, f.first) for f in frames] == [(0, 0), (1, 0)]
    assert damaged == 0
    with rank_file(spool, 0).open("ab") as file:
        file.write(torn[30:])
    gatherer.finish()
    frames, damaged = read_frames(host_file(capture, "node 7"))
    assert [(f.rank, f.first) for f in frames] == [(0, 0), (1, 0), (0, 1)]
    assert damaged == 0
    assert not spool.exists()


def test_a_torn_frame_between_two_attempts_does_not_hide_the_second(tmp_path: Path) -> None:
    spool, capture = tmp_path / "spool", tmp_path / "capture"
    spool.mkdir()
    capture.mkdir()
    gatherer = Gatherer(spool, capture, "n")
    rank_file(spool, 3).write_bytes(frame(3, 0) + frame(3, 1)[:40])
    gatherer.gather()
    with rank_file(spool, 3).open("ab") as file:
        file.write(frame(3, 2))
    gatherer.finish()
    frames, _ = read_frames(host_file(capture, "n"))
    assert [f.first for f in frames] == [0, 2]


def test_traces_go_up_and_requests_come_down(tmp_path: Path) -> None:
    spool, capture = tmp_path / "spool", tmp_path / "capture"
    (capture / "windows").mkdir(parents=True)
    spool.mkdir()
    trace_file(spool, 2, 1).write_bytes(b"trace")
    request_file(capture, 1).write_bytes(WindowRequest(1, 40, 3).to_bytes())
    Gatherer(spool, capture, "n").gather()
    assert trace_file(capture, 2, 1).read_bytes() == b"trace"
    assert not trace_file(spool, 2, 1).exists()
    assert WindowRequest.from_bytes(request_file(spool, 1).read_bytes()) == WindowRequest(1, 40, 3)


def test_a_window_that_rank_0_moves_moves_on_all_hosts(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    (capture / "windows").mkdir(parents=True)
    spools = [tmp_path / "spool0", tmp_path / "spool1"]
    for spool in spools:
        spool.mkdir()
    gatherers = [Gatherer(spool, capture, spool.name) for spool in spools]
    for first in (16, 32):
        publish(request_file(spools[0], 0), WindowRequest(0, first, 3))
        seen = []
        for gatherer in (*gatherers, *gatherers):
            gatherer.gather()
            if request_file(spools[1], 0).exists():
                seen.append(request_file(spools[1], 0).stat().st_ino)
        assert {WindowRequest.from_bytes(request_file(spool, 0).read_bytes()).first for spool in spools} == {first}
        assert len(set(seen[1:])) == 1, "it arrives once"


def test_frames_behind_a_torn_one_arrive_at_the_latest_with_the_end(tmp_path: Path) -> None:
    spool, capture = tmp_path / "spool", tmp_path / "capture"
    spool.mkdir()
    capture.mkdir()
    torn = frame_bytes(3, "s3", 0, 0, [{"kind": "note", "what": "x" * 5000, "count": 1, "reason": ""}])[:40]
    rank_file(spool, 3).write_bytes(torn + frame(3, 1))
    Gatherer(spool, capture, "n").finish()
    assert [f.first for f in read_frames(host_file(capture, "n"))[0]] == [1]


@pytest.mark.parametrize("is_last", [False, True])
def test_a_trace_that_is_written_anew_while_it_is_carried_goes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_last: bool
) -> None:
    spool, capture = tmp_path / "spool", tmp_path / "capture"
    spool.mkdir()
    capture.mkdir()
    trace, copied = trace_file(spool, 0, 0), gather._copy
    trace.write_bytes(b"older")

    def and_anew(source: Path, target: Path) -> None:
        monkeypatch.undo()
        copied(source, target)
        (spool / "new").write_bytes(b"newer")
        (spool / "new").replace(trace)

    gatherer = Gatherer(spool, capture, "n")
    monkeypatch.setattr(gather, "_copy", and_anew)
    if is_last:
        gatherer.finish()
    else:
        gatherer.gather()
        gatherer.gather()
    assert trace_file(capture, 0, 0).read_bytes() == b"newer"
    assert not trace.exists()


def test_a_trace_that_goes_while_it_is_carried_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, capture = tmp_path / "spool", tmp_path / "capture"
    spool.mkdir()
    capture.mkdir()
    copied = gather._copy
    for rank in range(2):
        trace_file(spool, rank, 0).write_bytes(b"trace")

    def and_gone(source: Path, target: Path) -> None:
        monkeypatch.undo()
        copied(source, target)
        source.unlink()

    monkeypatch.setattr(gather, "_copy", and_gone)
    Gatherer(spool, capture, "n").gather()
    assert [trace_file(capture, rank, 0).read_bytes() for rank in range(2)] == [b"trace"] * 2


def test_a_spool_in_which_a_trace_is_still_written_stays_for_it_alone(tmp_path: Path) -> None:
    spool, capture = tmp_path / "spool", tmp_path / "capture"
    spool.mkdir()
    capture.mkdir()
    rank_file(spool, 2).write_bytes(frame(2, 0))
    trace_file(spool, 0, 1).write_bytes(b"trace")
    with lock_of(trace_file(spool, 2, 1)).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Gatherer(spool, capture, "n").finish()
    assert [path.name for path in spool.iterdir()] == [lock_of(trace_file(spool, 2, 1)).name]
    assert trace_file(capture, 0, 1).read_bytes() == b"trace"


def test_file_systems_of_the_network_are_known(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nhost:/x {tmp_path}/net nfs4 rw 0 0\n")
    (tmp_path / "net").mkdir()
    assert is_shared(tmp_path / "net" / "run", mounts)
    assert not is_shared(tmp_path / "network", mounts)
    assert not is_shared(tmp_path, tmp_path / "none")
