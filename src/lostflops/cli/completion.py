"""Words that a shell completes: runs, changes, causes and findings. Set it up with `lostflops --install-completion`."""

from collections.abc import Iterator
from pathlib import Path

from lostflops.cli.groups import is_run

MOST_FOLDERS = 200
"""At most this many folders are examined: completing must not take seconds in a folder of a million."""


def complete_run(incomplete: str) -> list[str]:
    """Return runs that begin with this text, and folders that may contain some.

    >>> complete_run("/nonexistent/x")
    []
    """
    return list(_folders(incomplete))


def _folders(incomplete: str) -> Iterator[str]:
    typed, _, start = incomplete.rpartition("/")
    parent = Path(f"{typed}/" if "/" in incomplete else ".").expanduser()
    try:
        places = sorted(place for place in parent.iterdir() if place.name.startswith(start))[:MOST_FOLDERS]
    except OSError:
        return
    for place in places:
        if place.is_dir() and (start or not place.name.startswith(".")):
            text = f"{typed}/{place.name}" if "/" in incomplete else place.name
            yield text if is_run(str(place)) else f"{text}/"


def complete_change(incomplete: str) -> list[tuple[str, str]]:
    """Return changes that begin with this text, each with what it means."""
    from lostflops.predict.whatif.changes import CHANGES

    return [(f"{change.name}=", change.about) for change in CHANGES if f"{change.name}=".startswith(incomplete)]


def complete_finding(incomplete: str) -> list[str]:
    """Return numbers of findings: the first ones, because counting them takes a diagnosis."""
    return [number for number in ("1", "2", "3") if number.startswith(incomplete)]


def complete_topic(incomplete: str) -> list[tuple[str, str]]:
    """Return topics of `lostflops help` that begin with this text."""
    from lostflops.cli.groups import GROUPS
    from lostflops.explain.advise.rules import RULES

    verbs = [(verb, "verb") for verbs in GROUPS.values() for verb in verbs]
    topics = [
        ("all", "all verbs"),
        ("exit-codes", ""),
        ("completion", ""),
        *verbs,
        *((rule.cause, "cause") for rule in RULES),
    ]
    return [(topic, meaning) for topic, meaning in topics if topic.startswith(incomplete)]
