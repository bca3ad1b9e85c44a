"""What stands in a capture was asked for: nothing of the program's values, paths, arguments or environment."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from tests.collect.jobs import PYTHON, finish, plain_environment, recorded, records, run_words
from tests.run_rows import rows_of

pytest.importorskip("torch")

from lostflops.collect.model_facts import ENVIRONMENT
from tests.collect import zoo

CANARY = "canary-7f3a"
PROGRAM = f"""
import sys
from pathlib import Path
import torch
from tests.collect import zoo

def main():
    secret = "{CANARY}-local"
    net = zoo.model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step, _ in enumerate(zoo.train(net, optimizer)):
        try:
            if step == 21:
                raise ValueError("{CANARY}-message " + secret)
        except ValueError:
            pass
    raise RuntimeError(secret)

main()
"""


def everything(folder: Path) -> bytes:
    found = [str(path).encode() for path in sorted(folder.rglob("*"))]
    for path in (path for path in sorted(folder.rglob("*")) if path.is_file()):
        data = path.read_bytes()
        found += [data, gzip.decompress(data) if path.suffix == ".gz" else b""]
    return b"\n".join(found)


def test_no_canary_gets_into_a_capture(tmp_path: Path) -> None:
    place = tmp_path / f"{CANARY}-folder"
    place.mkdir()
    (place / "train.py").write_text(PROGRAM)
    root = Path(zoo.__file__).parents[2]
    secrets = {f"MY_{name}": f"{CANARY}-{name}" for name in ("TOKEN", "HOST")}
    settings = plain_environment(AWS_SECRET_ACCESS_KEY=CANARY, NCCL_HOSTID=CANARY, LOGNAME=CANARY, **secrets)
    settings["PYTHONPATH"] = f"{root / 'src'}:{root}"
    words = [
        *run_words(tmp_path / "run", "--steps", "18:6", "--keep-raw"),
        PYTHON,
        str(place / "train.py"),
        f"--key={CANARY}",
    ]
    done = finish(words, settings, cwd=place)
    assert done.code == 1
    assert f"RuntimeError: {CANARY}-local".encode() in done.stderr
    capture = tmp_path / "run" / "capture"
    rows = repr(rows_of(tmp_path / "run")).replace(str(tmp_path), "").encode()
    kept = everything(capture) + rows
    assert len(list(capture.glob("*.json.gz"))) == len(list(capture.glob("*.parts"))) == 1
    assert b"train.py" in rows
    assert b"train.py" in kept
    assert CANARY.encode() not in kept
    recorded_names = {
        name for record in records(capture, "job") if record["key"] == "environment" for name in record["value"]
    }
    assert recorded_names <= set(ENVIRONMENT)
    shutil.rmtree(tmp_path / "run")


@pytest.mark.parametrize(
    ("variables", "rank", "size"),
    [
        pytest.param({}, 0, 1, marks=pytest.mark.slow),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, 3, 8),
    ],
)
def test_a_process_without_a_group_is_the_rank_that_its_launcher_says(
    tmp_path: Path, variables: dict[str, str], rank: int, size: int
) -> None:
    environment = recorded(tmp_path / "capture", plain_environment(**variables))
    assert finish([PYTHON, str(zoo.__file__), str(tmp_path), "plain"], environment).code == 0
    (session,) = records(tmp_path / "capture", "session")
    assert (session["rank"], session["world_size"]) == (rank, size)
    assert (tmp_path / "capture" / f"rank-{rank:05d}.capture").exists()


@pytest.mark.slow
def test_two_processes_of_one_rank_have_a_file_each(tmp_path: Path) -> None:
    out = tmp_path / "second"
    out.mkdir()
    script = f"{PYTHON} {zoo.__file__} {tmp_path} plain & {PYTHON} {zoo.__file__} {out} plain; wait"
    environment = recorded(tmp_path / "capture", plain_environment(ZOO_PAUSE="0.2"))
    assert finish(["sh", "-c", script], environment).code == 0
    sessions = [records(folder, "session") for folder in (tmp_path / "capture", tmp_path / "capture" / "beside-2")]
    assert [len(found) for found in sessions] == [2, 1]
    assert (tmp_path / "plain.0").read_text() == (out / "plain.0").read_text()
