import json

from memory_run import MemoryRun


def small_run() -> MemoryRun:
    return MemoryRun(
        ranks=[{"rank": 0, "device": "H100", "world_size": 2, "events": 2}, {"rank": 1, "world_size": 2, "events": 0}],
        events=[{"rank": 0, "kind": "op", "start": 0, "dur": 5}, {"rank": 0, "kind": "kernel", "start": 2, "dur": 9}],
    )


def test_text(lostflops, runs, tmp_path) -> None:
    runs[str(tmp_path)] = small_run
    (tmp_path / "part").write_bytes(b"12345")
    outcome = lostflops("info", tmp_path)
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[1] == "2 of 2 ranks, 0 steps, 2 events over 11 ns."
    assert "Data quality of 2 ranks: 1 good, 0 usable with gaps, 1 poor." in lines
    assert "no timed events" in outcome.out
    assert "5 B" in outcome.out
    assert lines[-2:] == [f"Next: lostflops report {tmp_path}", f"Or: lostflops sql {tmp_path}"]


def test_json(lostflops, runs, tmp_path) -> None:
    runs[str(tmp_path)] = small_run
    outcome = lostflops("info", tmp_path, "--json")
    data = json.loads(outcome.out)
    assert data["schema"] == "lostflops.info/1"
    assert data["contents"]["held"]["ranks"] == 2
    assert data["contents"]["disk"] == {"bytes": 0, "files": 0}
    assert data["quality"]["verdicts"] == {"good": 1, "usable": 0, "poor": 1}
    assert "Next" not in outcome.out


def test_no_run(lostflops, runs) -> None:
    outcome = lostflops("info", "nowhere")
    assert (outcome.code, outcome.out) == (5, "")
    assert outcome.err == "lostflops: nowhere holds no run; make one with lostflops ingest\n"
