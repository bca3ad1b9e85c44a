"""Real jobs over gloo: which unit or layer asked for each collective follows from their order in a step."""

import os
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from lostflops.explain.analyze.layers import layers
from lostflops.explain.analyze.report import report
from lostflops.store.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")]

ROOT = Path(__file__).parents[2]
LONGEST = 400
"""Seconds; on a machine with nothing else to do it is a twentieth."""
RECORD = ("-m", "lostflops", "run", "--steps", "3:3", "--out")
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
UNITS = (
    ("(root)", "forward"),
    ("layers.0", "forward"),
    ("layers.1", "forward"),
    ("layers.1", "backward"),
    ("layers.0", "backward"),
    ("layers.1", "backward"),
    ("layers.0", "backward"),
    ("(root)", "backward"),
)
"""All-gathers of a step, then reductions, which gloo runs as all-reduces; the root is gathered once."""
BLOCKS = tuple((str(block), "forward") for block in range(4)) + tuple((str(3 - i), "backward") for i in range(4))


@pytest.mark.timeout(LONGEST)
@pytest.mark.parametrize(
    ("example", "table", "name", "order"),
    [("fsdp2_transformer", "units", "unit", UNITS), ("tensor_parallel", "layers", "layer", BLOCKS)],
)
def test_calls_belong_to_who_asked(example, table, name, order, tmp_path):
    script = str(ROOT / "examples" / f"{example}.py")
    words = [sys.executable, *RECORD, str(tmp_path / "run"), "--", sys.executable, *LAUNCH, script, "--steps", "8"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(words, check=True, capture_output=True, timeout=LONGEST, env=environment)
    with Run.open(tmp_path / "run") as run:
        check_calls(run, table, name, order)


def check_calls(run, table, name, order):
    """Compare with the calls of each step in the order in which they began."""
    expected, calls = Counter(), Counter()
    query = (
        "select s.rank, s.step, e.name, e.start, e.dur from events e join steps s on e.rank = s.rank "
        "and e.start >= s.start and e.start < s.stop where e.kind = 'host_comm' order by all"
    )
    steps = {}
    for rank, step, op, start, dur in run.sql(query).fetchall():
        steps.setdefault((rank, step), []).append((start, op.removeprefix("gloo:"), dur))
    for own in steps.values():
        assert len(own) == len(order)
        in_order = sorted(own)
        if table == "units":
            in_order.sort(key=lambda call: call[1] != "all_gather")
        for key, (_, op, dur) in zip(order, in_order, strict=True):
            expected[(*key, op)] += dur
            calls[(*key, op)] += 1
    found = layers(run).to_json()
    rows = {(row[name], row["pass"], row["op"]): row for row in found[table]}
    assert {key: row["calls"] for key, row in rows.items()} == calls
    assert {key: row["exposed_ns"] + row["hidden_ns"] for key, row in rows.items()} == expected
    assert not [row for row in found["layers"] if row["layer"] == "(no layer)"]
    lines = {line["line"]: line["ns"] for line in report(run).to_json()["ledger"]["lines"]}
    exposed = sum(row["exposed_ns"] for part in ("units", "layers") for row in found[part])
    assert exposed == lines["comm.transfer"] + lines["comm.wait"] + lines["comm.bubble"]
