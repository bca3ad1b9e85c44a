"""Real dumps of a Megatron job on 16 ranks in which two ranks were broken on purpose: exactly these are named."""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lostflops.explain.analyze.hang import hang
from lostflops.ingest import ingest
from lostflops.store.run import Run
from shared_data import TRACES

DUMPS = TRACES / "NVIDIA__nvidia-resiliency-ext" / "fr_traces"
FAULTS = {
    "gpu_error_1st": ([12, 14], "stalled"),
    "gpu_error_2nd": ([9, 14], "stalled"),
    "lock_gil_1st": ([9, 14], "never arrived"),
    "lock_gil_2nd": ([10, 15], "never arrived"),
}
needs_dumps = pytest.mark.skipif(not DUMPS.is_dir(), reason="the shared traces are not here")


def answer(folder: Path, *sources: Path) -> dict[str, Any]:
    ingest(list(sources), folder / "run", workers=1)
    with Run.open(folder / "run") as run:
        return hang(run).to_json()


@needs_dumps
@pytest.mark.parametrize("fault", FAULTS)
def test_the_broken_ranks_are_named(tmp_path: Path, fault: str) -> None:
    ranks, why = FAULTS[fault]
    found = answer(tmp_path, DUMPS / fault)
    assert [(row["rank"], row["why"], row["waiting"]) for row in found["culprits"]] == [
        (rank, why, 14) for rank in ranks
    ]
    assert found["mismatches"] == []
    assert found["verdict"].endswith("14 other ranks wait for them.")


@needs_dumps
@pytest.mark.parametrize("fault", FAULTS)
def test_they_are_named_without_their_dumps(tmp_path: Path, fault: str) -> None:
    """A broken rank may not have written one."""
    ranks, _ = FAULTS[fault]
    rest = [path for path in (DUMPS / fault).glob("_dump_*") if int(path.name.split("_")[-1]) not in ranks]
    found = answer(tmp_path, *rest)
    assert [(row["rank"], row["why"]) for row in found["culprits"]] == [(rank, "no dump") for rank in ranks]


PROGRAM = """
import sys, time, torch, torch.distributed as dist
from pathlib import Path
from torch._C._distributed_c10d import _dump_fr_trace
folder = Path(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()
for _ in range(3):
    dist.all_reduce(torch.ones(8))
if rank != 1:
    work = dist.all_reduce(torch.ones(8), async_op=True)
time.sleep(1)
(folder / f"fr_rank_{rank}").write_bytes(_dump_fr_trace())
(folder / f"done_{rank}").touch()
while len(list(folder.glob("done_*"))) < 3:
    time.sleep(0.05)
import os
os._exit(0)
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_real_job_in_which_a_rank_never_calls(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    environment = os.environ | {"TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    # Its own session, so that a timeout ends the launcher and its ranks and nothing else.
    process = subprocess.Popen(
        [*command, str(tmp_path / "program.py"), str(tmp_path)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail("torchrun did not end within 120 s")
    assert process.returncode == 0, output
    found = answer(tmp_path, *sorted(tmp_path.glob("fr_rank_*")))
    assert [(row["rank"], row["why"], row["waiting"]) for row in found["culprits"]] == [(1, "never arrived", 2)]
    assert "program.py(9)" in found["culprits"][0]["last"]["source"]
