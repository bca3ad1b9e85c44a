"""What is installed is locked with hashes and allowed by its licence; workflows run only pinned actions."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from email.message import Message
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LOCKS = {path.stem: path for path in (ROOT / "locks").glob("*.txt")}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")

sys.path.insert(0, str(ROOT / "scripts"))
import licences  # noqa: E402 (scripts, not packages)
import sbom  # noqa: E402


def of_group(name: str) -> Iterator[str]:
    for entry in PROJECT["dependency-groups"][name]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from of_group(entry["include-group"])


def of_extras(*names: str) -> list[str]:
    extras = PROJECT["project"]["optional-dependencies"]
    return [*PROJECT["project"]["dependencies"], *(entry for name in names for entry in extras[name])]


WANTED = {
    "dev": [*of_extras("otel", "fast", "s3", "serve", "fleet"), *of_group("dev")],
    "runtime": of_extras("all"),
    "release": list(of_group("release")),
    "fuzz": list(of_group("fuzz")),
}


def pins(text: str) -> list[tuple[Requirement, int]]:
    """Return each pin of a lock with the count of its hashes."""
    entries = re.split(r"\n(?=[a-z0-9])", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE))
    return [(Requirement(entry.split("\\")[0]), entry.count("--hash=sha256:")) for entry in entries]


def installs(text: str, python: str) -> dict[str, Version]:
    """Return what a lock installs on Linux with this Python; a distribution that it names twice is an error."""
    environment = {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": "linux"}
    environment |= {"os_name": "posix", "platform_system": "Linux"}
    found: dict[str, Version] = {}
    for pin, _ in pins(text):
        if pin.marker is None or pin.marker.evaluate(environment):
            assert pin.name not in found, f"{pin.name} twice for Python {python}"
            found[pin.name] = Version(str(pin.specifier).removeprefix("=="))
    return found


def stale(lock: str, wanted: list[str]) -> list[str]:
    """Return the requirements that a lock does not satisfy with some version of Python."""
    return sorted(
        {
            str(requirement)
            for python in PYTHONS
            for requirement in map(Requirement, wanted)
            if (version := installs(lock, python).get(canonicalize_name(requirement.name))) is None
            or not requirement.specifier.contains(version, prereleases=True)
        }
    )


@pytest.mark.parametrize("name", WANTED)
def test_locks_satisfy_pyproject(name: str) -> None:
    assert stale(LOCKS[name].read_text("utf-8"), WANTED[name]) == [], "run scripts/lock"


def test_a_stale_lock_is_found() -> None:
    lock = (
        "# made by\nnumpy==2.4.6 ; python_full_version < '3.12' \\\n    --hash=sha256:00\n    # via x\nrich==15.0 \\\n"
    )
    assert stale(lock, ["rich>=13.8", "numpy>=2.0"]) == ["numpy>=2.0"]
    assert stale(lock, ["rich>=16", "typer"]) == ["rich>=16", "typer"]


def test_every_lock_is_used_and_every_pin_has_a_hash() -> None:
    assert set(LOCKS) == set(WANTED)
    for path in LOCKS.values():
        text = path.read_text("utf-8")
        assert [str(pin) for pin, hashes in pins(text) if not hashes or not str(pin.specifier).startswith("==")] == []
        assert "torch" not in installs(text, "3.11"), "its build and its hash depend on the machine"
        assert not re.search(r"^ *--(?!hash)|://", text, re.MULTILINE), "a lock names no index"


def test_locks_agree() -> None:
    for python in PYTHONS:
        every = [installs(path.read_text("utf-8"), python) for path in LOCKS.values()]
        pinned = {(name, version) for lock in every for name, version in lock.items()}
        assert len(pinned) == len({name for name, _ in pinned})


def test_licences_of_what_is_installed_are_allowed() -> None:
    names = set().union(*(licences.locked_names(path) for path in LOCKS.values()))
    assert len(names & {licences.normal(entry.name) for entry in distributions()}) > 20
    assert licences.problems(distributions(), names) == []


class Stated(Distribution):
    def __init__(self, **fields: str) -> None:
        self.message = Message()
        for field, value in ({"Name": "x", "Version": "1"} | fields).items():
            self.message[field.replace("_", "-")] = value

    metadata = property(lambda self: self.message)

    def read_text(self, filename: str) -> None: ...

    def locate_file(self, path: object) -> Path:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("fields", "is_problem"),
    [
        ({"License_Expression": "MIT AND PSF-2.0"}, False),
        ({"License_Expression": "GPL-3.0-only OR MIT"}, False),
        ({"License_Expression": "MIT AND GPL-3.0-only"}, True),
        ({"License_Expression": "(MIT OR GPL-3.0-only) AND AGPL-3.0-only"}, True),
        ({"License": "MIT", "Classifier": "License :: OSI Approved :: GNU General Public License v3 (GPLv3)"}, True),
        ({"License": "apache-2.0"}, False),
        ({"License": "the text\nof some licence"}, True),
        ({}, True),
    ],
)
def test_a_licence_that_is_unknown_or_not_allowed_is_a_problem(fields: dict[str, str], is_problem: bool) -> None:
    assert bool(licences.problems(iter([Stated(**fields)]), {"x"})) == is_problem


def test_the_bundle_of_the_page_includes_only_allowed_licences_and_notice_has_them() -> None:
    text = (ROOT / "NOTICE").read_text("utf-8")
    bundled = licences.bundled()
    assert {"d3-array", "d3-scale", "internmap"} <= set(bundled)
    assert [name for name, entry in bundled.items() if not licences.is_allowed(entry["license"])] == []
    listed = re.findall(r"(\S+) (\d\S*) \((\S+)\)[,:]", text)
    assert sorted(listed) == [(name, entry["version"], entry["license"]) for name, entry in bundled.items()]
    modules = ROOT / "ui" / "node_modules"
    if modules.is_dir():
        assert licences.notice(modules) == text, "run python scripts/licences.py --notice"


def test_the_sbom_lists_the_parts_of_the_page() -> None:
    own = {"bom-ref": "lostflops==1", "name": "lostflops"}
    listed = {"metadata": {"component": own}, "components": [], "dependencies": [{"ref": own["bom-ref"]}]}
    sbom.add_bundled(listed)
    version = licences.bundled()["d3-scale"]["version"]
    assert {entry["name"] for entry in listed["components"]} == set(licences.bundled())
    assert f"pkg:npm/d3-scale@{version}" in listed["dependencies"][0]["dependsOn"]


def test_every_action_is_pinned_by_digest_with_its_version() -> None:
    workflows = {path: path.read_text("utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    used = [line for text in workflows.values() for line in re.findall(r"uses: (.*)", text)]
    assert len(used) > 10
    assert [line for line in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []
    versions = {line.split("@")[0]: set() for line in used}
    for line in used:
        versions[line.split("@")[0]].add(line)
    assert [action for action, lines in versions.items() if len(lines) > 1] == [], "one version of each action"


def test_workflows_install_only_what_is_locked() -> None:
    """torch is the exception: its build, and so its hash, depends on the machine."""
    texts = [path.read_text("utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    installed = [line for text in texts for line in re.findall(r"(pip install .*)", text)]
    locked = r"pip install --no-deps --require-hashes -r locks/\w+\.txt|pip install --no-deps --no-build-isolation \."
    assert {line for line in installed if not re.fullmatch(locked, line)} == {
        'pip install -c constraints.txt "torch==$TORCH"'
    }


def test_zizmor_finds_nothing_in_the_workflows() -> None:
    zizmor = shutil.which("zizmor", path=str(Path(sys.executable).parent))
    if zizmor is None:
        pytest.skip("zizmor is not installed: pip install --group dev")
    done = subprocess.run(
        [zizmor, "--offline", "--no-progress", ROOT / ".github"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
