"""Traces of several jobs are not mixed: the answer has the command for each."""

import re
import shlex

import pytest
from tests.ingest.test_kineto_golden import event

from lostflops.core.errors import RankConflict, SeveralJobs
from lostflops.ingest import ingest
from shared_data import TRACES, needs_traces


def written(traces, name, rank, pid, *, world=2, ts=0):
    info = {"backend": "nccl", "rank": rank, "world_size": world}
    return traces.write(name, [event("cpu_op", "aten::mm", ts, 5, pid=pid)], distributedInfo=info)


def offered(traces):
    """The files or folders of each command in the answer, and its run."""
    with pytest.raises(SeveralJobs) as refusal:
        ingest([traces.folder], traces.run, workers=1)
    assert not traces.run.exists()
    words = [shlex.split(line, comments=True) for line in str(refusal.value).splitlines()[1:]]
    assert all(line[:2] == ["lostflops", "ingest"] and line[-2] == "-o" for line in words)
    return [([re.sub(f"^{traces.folder}/?", "", word) for word in line[2:-2]], line[-1]) for line in words]


def test_runs_in_folders_of_their_own(traces):
    for pid, folder in ((10, "first"), (20, "second")):
        for rank in (0, 1):
            written(traces, f"{folder}/rank{rank}/trace.json", rank, pid + rank)
    assert offered(traces) == [(["first"], "run-first"), (["second"], "run-second")]


def test_each_command_that_is_offered_works(traces):
    for pid, folder in ((10, "first"), (20, "second")):
        written(traces, f"{folder}/trace.json", 0, pid)
    for (found,), run in offered(traces):
        summary = ingest([traces.folder / found], traces.run.with_name(run), workers=1)
        assert summary.ranks_added == (0,)


def test_runs_in_one_folder_by_their_names(traces):
    for pid, name in ((10, "base"), (20, "fused")):
        for rank in (0, 1):
            written(traces, f"{name}-rank{rank}.json", rank, pid + rank)
    assert [found for found, _ in offered(traces)] == [["base-rank*.json"], ["fused-rank*.json"]]


def test_runs_in_one_folder_by_their_time(traces):
    for pid, ts in ((30, 9_000_000), (10, 0)):
        for rank in (0, 1):
            written(traces, f"node_{pid + rank}.{1600000000000 + ts}.pt.trace.json", rank, pid + rank, ts=ts + rank)
    patterns = ["node_1*.1600000000000.pt.trace.json", "node_3*.1600009000000.pt.trace.json"]
    assert [found for found, _ in offered(traces)] == [[pattern] for pattern in patterns]


def test_jobs_of_other_sizes_without_a_rank_in_common(traces):
    written(traces, "a.json", 0, 10, world=2)
    written(traces, "b.json", 5, 20, world=8)
    assert [found for found, _ in offered(traces)] == [["a.json"], ["b.json"]]


def test_names_of_runs_differ(traces):
    for pid, folder in ((10, "a/traces"), (20, "b/traces")):
        for rank in (0, 1):
            written(traces, f"{folder}/rank{rank}.json", rank, pid + rank)
    assert [run for _, run in offered(traces)] == ["run-traces", "run-traces-2"]


def test_ranks_of_one_job_are_one_run(traces):
    for rank in (0, 1):
        written(traces, f"rank{rank}/trace.json", rank, 10 + rank)
    assert ingest([traces.folder], traces.run, workers=1).ranks_added == (0, 1)


def test_files_of_one_process_are_no_several_jobs(traces):
    """What they are is decided elsewhere."""
    written(traces, "a.json", 0, 10)
    written(traces, "b.json", 0, 10, ts=1000)
    try:
        ingest([traces.folder], traces.run, workers=1)
    except RankConflict as error:
        assert not isinstance(error, SeveralJobs)  # noqa: PT017 - it may not be raised at all


@needs_traces
@pytest.mark.parametrize(
    ("folder", "jobs"), [("meta-pytorch__torchrec", 6), ("KellerJordan__modded-nanogpt", 4), ("pytorch__kineto", 2)]
)
def test_recorded_folders(tmp_path, folder, jobs):
    with pytest.raises(SeveralJobs, match=f"has traces of {jobs} jobs"):
        ingest([TRACES / folder], tmp_path / "run")
