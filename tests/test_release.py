"""What is released: the same bytes wherever they are built, of the files that git knows and no others."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from lostflops import __version__

ROOT = Path(__file__).parent.parent
NAME = f"lostflops-{__version__}"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("build") is None, reason="build is not installed"),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no checkout"),
]


@dataclass(frozen=True)
class Built:
    wheel: bytes
    sdist: bytes


def built(checkout: Path, out: Path, umask: int = 0o022, **environment: str) -> Built:
    subprocess.run(
        [checkout / "scripts" / "build", out],
        env={**os.environ, "PYTHON": sys.executable, **environment},
        umask=umask,
        cwd=out.parent,
        check=True,
    )
    return Built((out / f"{NAME}-py3-none-any.whl").read_bytes(), (out / f"{NAME}.tar.gz").read_bytes())


def cloned(to: Path, umask: int) -> Path:
    subprocess.run(["git", "clone", "--quiet", ROOT, to], umask=umask, check=True)
    return to


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cloned(tmp_path_factory.mktemp("one") / "checkout", 0o022)


@pytest.fixture(scope="module")
def first(checkout: Path) -> Built:
    return built(checkout, checkout.parent / "dist", TZ="UTC", PYTHONHASHSEED="1", LC_ALL="C")


def test_two_checkouts_give_the_same_bytes(first: Built, tmp_path: Path) -> None:
    other = cloned(tmp_path / "another place" / "with a longer name", 0o077)
    (other / "left-over.py").write_text("what git does not know")
    for path in (other / "src").rglob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    again = built(other, tmp_path / "dist", 0o077, TZ="Asia/Kathmandu", PYTHONHASHSEED="77", LC_ALL="C.UTF-8")
    assert (again.wheel == first.wheel, again.sdist == first.sdist) == (True, True)


def test_an_sdist_gives_its_wheel_and_itself_again(first: Built, checkout: Path, tmp_path: Path) -> None:
    with tarfile.open(checkout.parent / "dist" / f"{NAME}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    again = built(tmp_path / NAME, tmp_path / "dist")
    assert (again.wheel == first.wheel, again.sdist == first.sdist) == (True, True)


def test_a_wheel_of_the_checkout_is_that_of_the_sdist(first: Built, checkout: Path, tmp_path: Path) -> None:
    committed = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=checkout, capture_output=True, check=True)
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, checkout],
        env={**os.environ, "SOURCE_DATE_EPOCH": committed.stdout.decode().strip()},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    assert (tmp_path / f"{NAME}-py3-none-any.whl").read_bytes() == first.wheel


def test_archives_hold_what_git_knows_and_no_path_of_this_machine(first: Built, checkout: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=checkout, capture_output=True, check=True)
    tracked = set(listed.stdout.decode().split("\0")) - {""}
    with tarfile.open(checkout.parent / "dist" / f"{NAME}.tar.gz") as archive:
        in_sdist = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        texts = [file.read() for file in in_sdist.values() if file]
    with zipfile.ZipFile(checkout.parent / "dist" / f"{NAME}-py3-none-any.whl") as archive:
        in_wheel = set(archive.namelist())
        texts += [archive.read(name) for name in in_wheel]

    assert set(in_sdist) == {f"{NAME}/{name}" for name in {*tracked, "PKG-INFO"}}
    source = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    assert {name for name in in_wheel if ".dist-info/" not in name} == source
    for place in (checkout, ROOT):
        assert not [text for text in texts if bytes(place) in text]
