"""What pytest does not import, how many examples a property is tried with, and an object store."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings

from lostflops.core.estimate import Strength
from lostflops.explain.advise import findings

if TYPE_CHECKING:
    from made_store import ObjectStore

collect_ignore_glob = ["*/growing_job.py", "*/out_of_memory_job.py"]
"""Programs that tests start as processes of their own."""

# No deadline: machines are shared. HYPOTHESIS_PROFILE=thorough tries more.
settings.register_profile("quick", deadline=None, max_examples=20)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# A shell ignores Ctrl-C for what it starts in the background, and so would all programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache out of tests, and start no workers for tiny jobs unless a test is about workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("LOSTFLOPS_WORKERS", "1")
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all but a few variants of a test slow, and give slow tests an hour, in place of the five minutes that others
    have."""
    variants: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few") is not None and item.get_closest_marker("slow") is None:
            variants.setdefault((item.location[0], item.name.partition("[")[0]), []).append(item)
    for own in variants.values():
        marker = own[0].get_closest_marker("few")
        assert marker is not None
        count = min(marker.args[0], len(own))
        kept = {number * len(own) // count for number in range(count)}
        for number, item in enumerate(own):
            if number not in kept:
                item.add_marker(pytest.mark.slow)
    for item in items:
        if item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.timeout(3600))


CHANCES: Final = {Strength.STRONG: 0.95, Strength.FAIR: 0.7, Strength.WEAK: 0.3}


@pytest.fixture(scope="session", autouse=True)
def _uncalibrated() -> Iterator[None]:
    """Test rules on their evidence: how often it is right, and how far savings are off, have tests of their own, and
    change with every new outcome."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings, "calibrated", lambda saving, _cause: saving)
        patch.setattr(findings, "probability_right", lambda _cause, strength, _saving: CHANCES[strength])
        yield


@pytest.fixture(scope="session")
def store_endpoint() -> Iterator[str]:
    pytest.importorskip("moto", reason="moto is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    from made_store import serving

    with serving() as endpoint:
        yield endpoint


@pytest.fixture
def object_store(store_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An empty bucket; what is fetched from it is kept for this test."""
    from made_store import bucket_of

    monkeypatch.setenv("AWS_ENDPOINT_URL", store_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-tests")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return bucket_of(store_endpoint)
