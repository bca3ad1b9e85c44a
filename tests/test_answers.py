"""The net under a refactoring: what differs between two records is shown, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def answers(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "answers.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answers")
    done = answers("record", folder / "before", "--only", "healthy", "--traces", folder, "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert "healthy: " in done.stdout
    return folder / "before"


def test_equal_records_are_equal(before: Path) -> None:
    done = answers("compare", before, before)
    assert done.returncode == 0
    assert "0 differ" in done.stdout
    assert json.loads((before / "healthy" / "report.json").read_text())["verdict"]


def test_a_changed_number_is_shown_with_its_place(before: Path, tmp_path: Path) -> None:
    for path in before.glob("*/*"):
        (tmp_path / path.parent.name).mkdir(exist_ok=True)
        (tmp_path / path.parent.name / path.name).write_bytes(path.read_bytes())
    changed = tmp_path / "healthy" / "steps.json"
    data = json.loads(changed.read_text())
    data["verdict"] = "other"
    changed.write_text(json.dumps(data))
    (tmp_path / "healthy" / "info.json").unlink()
    done = answers("compare", before, tmp_path)
    assert done.returncode == 1
    assert ".verdict: " in done.stdout
    assert f"info.json: only in {before}" in done.stdout
