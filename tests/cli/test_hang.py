"""`lostflops hang` on dump files and on a run."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.cli.mini_traces import CALM, make_run

from lostflops.ingest import ingest

START = 1_700_000_000_000_000_000


def entry(seq: int, state: str) -> dict[str, Any]:
    return {
        "record_id": seq,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": START + seq * 1_000_000,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": 0,
        "time_discovered_completed_ns": 0,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": False,
        "frames": [{"name": "train", "filename": "/job/train.py", "line": 12}],
    }


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Three ranks; rank 1 never calls the second all-reduce."""
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank in range(3):
        entries = [entry(1, "completed")] + ([entry(2, "scheduled")] if rank != 1 else [])
        document = {
            "version": "2.9",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
            "pg_status": {},
            "entries": entries,
        }
        (folder / f"fr_rank_{rank}.json").write_text(json.dumps(document))
    return folder


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_json(lostflops, dumps: Path) -> None:
    outcome = lostflops("hang", dumps, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert found.keys() == {"schema", "title", "verdict", "notes", "culprits", "groups", "mismatches"}
    assert found["schema"] == "lostflops.hang/1"
    assert found["culprits"] == [
        {
            "rank": 1,
            "why": "never arrived",
            "group": "0@0-2",
            "seq": 2,
            "op": "all_reduce",
            "waiting": 2,
            "line": None,
            "last": {
                "op": "all_reduce",
                "group": "0@0-2",
                "seq": 1,
                "state": "completed",
                "source": "/job/train.py(12): train",
                "created": START + 1_000_000,
            },
            "stack": None,
        }
    ]
    assert found["groups"] == [
        {
            "group": "0@0-2",
            "description": "default_pg",
            "op": "all_reduce",
            "seq": 2,
            "members": 3,
            "enqueued": "0,2",
            "started": "",
            "completed": "",
            "never_arrived": "1",
            "no_dump": "",
            "unknown": "",
        }
    ]


def test_text(lostflops, dumps: Path, scratch: Path) -> None:
    outcome = lostflops("hang", dumps)
    text = " ".join(outcome.out.split())
    assert "Rank 1 never arrived at all_reduce 2 of 0@0-2. 2 other ranks wait for it." in text
    assert "Last call of rank 1: all_reduce 1 of 0@0-2 (completed) at 2023-11-14 22:13:20.001 UTC" in text
    assert text.endswith(f"Next: lostflops ingest {dumps} -o run")
    assert (outcome.err, list(scratch.iterdir())) == ("", [])


def test_files_folders_and_globs_say_the_same(lostflops, dumps: Path) -> None:
    files = [str(path) for path in sorted(dumps.iterdir())]
    answers = {lostflops("hang", *given, "--json").out for given in ([dumps], files, [f"{dumps}/*.json"])}
    assert len(answers) == 1


def test_a_run(lostflops, dumps: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ingest([dumps], run)
    before = sorted(tmp_path.rglob("*"))
    outcome = lostflops("hang", run)
    assert "Rank 1 never arrived" in outcome.out
    query = "from flight where rank = 1 order by record desc limit 20"
    assert " ".join(outcome.out.split()).endswith(f"Next: lostflops sql {run} '{query}'")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_job_that_hangs_now(lostflops, dumps: Path, tmp_path: Path) -> None:
    """Its folder may be a run already, because of a window; the dumps are only in its capture."""
    run = make_run(tmp_path / "run", CALM, CALM, CALM)
    dumps.rename(run / "capture")
    for path in (run / "capture").iterdir():
        path.rename(path.with_name(path.stem.replace("fr_", "flight_")))
    outcome = lostflops("hang", run)
    assert "Rank 1 never arrived" in outcome.out
    assert " ".join(outcome.out.split()).endswith(f"Next: lostflops ingest {run / 'capture'} -o {run}")


def test_a_recorded_job_without_dumps_is_not_asked_to_set_variables(lostflops, tmp_path: Path) -> None:
    capture = tmp_path / "run" / "capture"
    capture.mkdir(parents=True)
    (capture / "rank-00000.capture").touch()
    outcome = lostflops("hang", tmp_path / "run")
    assert outcome.code == 2
    assert "no rank of" in outcome.err
    assert "TORCH_FR" not in outcome.err


def test_a_dump_that_is_not_there_is_a_suspect(lostflops, dumps: Path) -> None:
    found = json.loads(lostflops("hang", dumps / "fr_rank_0.json", dumps / "fr_rank_2.json", "--json").out)
    assert [(row["rank"], row["why"], row["waiting"]) for row in found["culprits"]] == [(1, "no dump", 2)]


def test_limit(lostflops, dumps: Path) -> None:
    for rank in (1, 2):
        (dumps / f"fr_rank_{rank}.json").unlink()
    found = json.loads(lostflops("hang", dumps, "--limit", "1", "--json").out)
    assert [(row["rank"], row["why"]) for row in found["culprits"]] == [(1, "no dump"), (2, "no dump")]
    assert "... and 1 more" in lostflops("hang", dumps, "--limit", "1").out


def test_a_run_without_dumps_says_how_to_get_them(lostflops, tmp_path: Path) -> None:
    outcome = lostflops("hang", make_run(tmp_path, CALM))
    assert outcome.code == 2
    assert "TORCH_FR_BUFFER_SIZE" in outcome.err
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT=1" in outcome.err


def test_dumps_that_do_not_tell_their_rank(lostflops, dumps: Path) -> None:
    known = json.loads(lostflops("hang", dumps, "--json").out)["notes"]
    (dumps / "fr_rank_2.json").rename(dumps / "last.json")
    notes = json.loads(lostflops("hang", dumps, "--json").out)["notes"]
    assert not any("assigned" in note for note in known)
    assert any(note.startswith("The rank of 1 file is unknown: numbers were assigned") for note in notes)


def test_nothing_there(lostflops, tmp_path: Path, scratch: Path) -> None:
    outcome = lostflops("hang", tmp_path / "nowhere")
    assert outcome.code in (2, 4)
    assert "nowhere" in outcome.err
    assert list(scratch.iterdir()) == []
