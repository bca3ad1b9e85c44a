"""Labels come from the user and the scheduler, the commit from git's files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lostflops.collect.labels import describe_program, join_labels, parse_label, read_commit, read_labels


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text("")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "start")
    return folder


def test_the_commit_is_that_of_git(repository: Path) -> None:
    known = git(repository, "rev-parse", "HEAD")
    (repository / "inner").mkdir()
    assert read_commit(repository / "inner") == known
    git(repository, "pack-refs", "--all")
    assert read_commit(repository) == known
    git(repository, "checkout", "-q", "--detach")
    assert read_commit(repository) == known


def test_a_worktree_has_its_own_commit(repository: Path) -> None:
    git(repository, "worktree", "add", "-q", "-b", "other", "../other")
    other = repository.parent / "other"
    (other / "more.py").write_text("")
    git(other, "add", ".")
    git(other, "commit", "-qm", "more")
    assert read_commit(other) == git(other, "rev-parse", "HEAD") != read_commit(repository)


@pytest.mark.parametrize("head", ["", "ref: refs/heads/none", "ref: ../../secret", "not a commit", "ref: \0"])
def test_a_broken_repository_has_no_commit(tmp_path: Path, head: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head)
    (tmp_path / "secret").write_text("a" * 40)
    assert read_commit(tmp_path) is None


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """Opening a pipe would wait for a writer, in the training job."""
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git" / "HEAD")
    assert read_commit(tmp_path) is None


@pytest.mark.parametrize("target", ["gitdir: \0", "gitdir: loop", "gitdir: ."])
def test_a_broken_link_to_a_repository_has_no_commit(tmp_path: Path, target: str) -> None:
    (tmp_path / ".git").write_text(target)
    (tmp_path / "loop").symlink_to("loop")
    assert read_commit(tmp_path) is None


def test_what_is_no_commit_in_a_packed_reference_is_not_recorded(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main")
    (tmp_path / ".git" / "packed-refs").write_text("secret refs/heads/main")
    assert read_commit(tmp_path) is None


def test_a_program_in_a_folder_that_was_deleted_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setattr("sys.argv", [""])
    gone.rmdir()
    assert [record for record in describe_program() if record["key"] == "commit"] == []


def test_a_value_of_a_label_ends_at_the_end_of_its_line_only() -> None:
    value = "a\x0bb\u2028c=d\re"
    assert read_labels({"LOSTFLOPS_LABELS": join_labels([f"team={value}", "job=x"])}) == {"team": value, "job": "x"}


def test_labels_of_the_user_count_before_those_of_the_scheduler() -> None:
    variables = {
        "LOSTFLOPS_LABELS": "user=ada\nteam=vision\nteam=speech",
        "SLURM_JOB_USER": "root",
        "SLURM_JOB_ID": "7",
    }
    assert read_labels(variables) == {"user": "ada", "team": "speech", "job_id": "7"}
    assert read_labels({"TORCHELASTIC_RUN_ID": "none", "LOSTFLOPS_LABELS": "nonsense\n1=2"}) == {}


def test_a_label_has_a_name_and_a_value() -> None:
    assert join_labels(["team=a=b", "job=two\nlines"]) == "team=a=b\njob=two lines"
    for wrong in ("team", "=x", "a b=c"):
        with pytest.raises(ValueError, match="name=value"):
            parse_label(wrong)
