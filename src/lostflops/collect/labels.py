"""What a job is called, by its scheduler and its user, and which commit of its program runs.

No command is started for it: git's files are read.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "LOSTFLOPS_LABELS"
"""Labels that the user gave, as `name=value`, one on each line."""
SCHEDULERS: Final = {
    "SLURM_JOB_NAME": "job",
    "SLURM_JOB_ID": "job_id",
    "SLURM_JOB_USER": "user",
    "SLURM_JOB_ACCOUNT": "team",
    "SLURM_JOB_PARTITION": "partition",
    "KUBERNETES_JOB_NAME": "job",
    "JOB_NAME": "job",
    "POD_NAMESPACE": "team",
    "RAY_JOB_ID": "job_id",
    "TORCHELASTIC_RUN_ID": "job_id",
}
"""Variables of schedulers, and the label that each gives; the first one that is set counts."""
_NONE: Final = ("", "none")
"""Values of torchrun and others that name nothing."""
_NAME: Final = re.compile(r"[A-Za-z_][\w.-]{0,62}")
_LONGEST: Final = 200
MOST_LABELS: Final = 32
_COMMIT: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_MOST_READ: Final = 1 << 20


def parse_label(text: str) -> tuple[str, str]:
    """Return name and value of a label; raise `ValueError` if it is not `name=value`.

    >>> parse_label("team=vision")
    ('team', 'vision')
    """
    name, separator, value = text.partition("=")
    if not separator or not _NAME.fullmatch(name):
        raise ValueError(f"{text!r} is not a label: write name=value; a name has letters, digits, _, - and .")
    return name, value[:_LONGEST]


def describe_program() -> Iterator[dict[str, Any]]:
    """Yield records of the labels and the commit of this process, if there are any."""
    if labels := read_labels(os.environ):
        yield {"kind": "job", "key": "labels", "value": labels}
    if (commit := _read_own_commit()) is not None:
        yield {"kind": "job", "key": "commit", "value": commit}


def read_labels(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a job; those of its user replace those of its scheduler.

    >>> read_labels({"SLURM_JOB_NAME": "llama", "LOSTFLOPS_LABELS": "team=vision"})
    {'team': 'vision', 'job': 'llama'}
    """
    found: dict[str, str] = {}
    for line in variables.get(VARIABLE, "").split("\n"):
        try:
            name, value = parse_label(line)
        except ValueError:
            continue
        found[name] = value
    for variable, name in SCHEDULERS.items():
        value = variables.get(variable, "")
        if value.casefold() not in _NONE:
            found.setdefault(name, value[:_LONGEST])
    return dict(list(found.items())[:MOST_LABELS])


def join_labels(labels: Iterable[str]) -> str:
    """Return checked labels as the value of `VARIABLE`."""
    return "\n".join("=".join(parse_label(one.replace("\n", " "))) for one in labels)


def _read_own_commit() -> str | None:
    try:
        return read_commit(Path(sys.argv[0]).resolve().parent if sys.argv and sys.argv[0] else Path.cwd())
    except (OSError, RuntimeError, ValueError):  # the folder was deleted, or links lead in a circle
        return None


def read_commit(start: Path) -> str | None:
    """Return the commit that is checked out in the repository around a folder; None without a repository.

    Changes that are not committed do not show.
    """
    try:
        folder = next((found for one in (start, *start.parents) if (found := one / ".git").exists()), None)
        if folder is None:
            return None
        if folder.is_file():  # a worktree or a submodule
            folder = (folder.parent / _read(folder).removeprefix("gitdir:").strip()).resolve()
        return _resolve(folder)
    except (OSError, RuntimeError, ValueError):  # a path with a zero byte, or links that lead in a circle
        return None


def _resolve(folder: Path) -> str | None:
    head = _read(folder / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else None
    name = head.removeprefix("ref:").strip()
    shared = folder / "commondir"
    whole = (folder / _read(shared).strip()).resolve() if shared.exists() else folder
    for place in (folder, whole):
        path = place / name
        if path.is_relative_to(place) and path.is_file() and _COMMIT.fullmatch(found := _read(path).strip()):
            return found
    packed = whole / "packed-refs"
    lines = _read(packed).splitlines() if packed.exists() else []
    found = next((line.split(" ")[0] for line in lines if line.endswith(f" {name}")), "")
    return found if _COMMIT.fullmatch(found) else None


def _read(path: Path) -> str:
    if not path.is_file():  # a pipe would hold up the training
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        return file.read(_MOST_READ).decode(errors="replace")
