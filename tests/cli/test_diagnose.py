"""Where a diagnosis leads: to what its best fix would do, else to all about the first finding."""

from pathlib import Path

import pytest

from lostflops.cli.verbs.diagnose import _with_next
from lostflops.core.results import Figure, Result

EXPLAINED = "lostflops explain 'my run' 1"


@pytest.mark.parametrize(
    ("changes", "following", "other"),
    [
        ((), "lostflops whatif 'my run' --all", ""),
        ((None,), EXPLAINED, ""),
        ((None, "data=1"), "lostflops whatif 'my run' --change data=1", EXPLAINED),
        (
            ("python=off, bucket_mb=50",),
            "lostflops whatif 'my run' --change python=off --change bucket_mb=50",
            EXPLAINED,
        ),
    ],
)
def test_hints(changes: tuple[str | None, ...], following: str, other: str) -> None:
    findings = tuple({"prediction": change and {"change": change}} for change in changes)
    told = _with_next(Result("diagnosis", "Diagnosis", "v", more=(Figure("findings", findings),)), Path("my run"), [])
    assert (told.next_command, told.other_command) == (following, other)


def test_hints_ask_with_the_same_network() -> None:
    found = Figure("findings", ({"prediction": {"change": "data=1"}},))
    told = _with_next(Result("diagnosis", "Diagnosis", "v", more=(found,)), Path("run"), ["--topology", "dgx-h100"])
    assert told.next_command == "lostflops whatif run --change data=1 --topology dgx-h100"
