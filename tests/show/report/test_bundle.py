"""What stands in every page: the bundle of the web UI, as it was built from `ui/`."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lostflops.show.report.html import asset

UI = Path(__file__).parents[3] / "ui"
# Names of XML languages look like addresses and are never asked for.
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml", "http://www.w3.org/1999/xlink"}
# The one address that is opened, in a tab of its own, and only by a click that says so.
BY_CLICK = {"https://ui.perfetto.dev"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    npx = shutil.which("npx")
    if npx is None or not (UI / "node_modules").is_dir():
        pytest.skip("the web UI cannot be built here: scripts/ui installs what it needs")
    folder = tmp_path_factory.mktemp("bundle")
    command = [npx, "--no-install", "vite", "build", "--logLevel", "error", "--outDir", str(folder)]
    subprocess.run(command, cwd=UI, check=True, capture_output=True, timeout=120)
    return folder


@pytest.mark.parametrize("name", ["app.js", "app.css"])
def test_the_bundle_is_what_its_source_gives(built: Path, name: str) -> None:
    assert (built / name).read_text("utf-8") == asset(name), "the bundle is older than its source: run scripts/ui"
    assert {file.name for file in built.iterdir()} == {"app.js", "app.css"}


def test_the_script_cannot_end_its_element() -> None:
    assert not re.search(r"</script|<!--|]]>", asset("app.js"), re.IGNORECASE)
    assert not re.search(r"</style", asset("app.css"), re.IGNORECASE)


def test_the_bundle_asks_for_nothing_outside() -> None:
    addresses = set(re.findall(r"\bhttps?://[\w./-]+", asset("app.js") + asset("app.css")))
    assert addresses <= NAMESPACES | BY_CLICK
    assert not re.search(r"@import|url\(\s*['\"]?(?!data:)", asset("app.css"))


def test_the_bundle_runs_no_text() -> None:
    """Nothing of it turns a string into markup or code."""
    forbidden = ("innerHTML", "outerHTML", "insertAdjacentHTML", "createContextualFragment", "srcdoc")
    code = ("document.write", "eval(", "new Function", "javascript:")
    assert [word for word in forbidden + code if word in asset("app.js")] == []


def test_what_the_build_needs_is_pinned_and_names_no_host() -> None:
    lock = json.loads((UI / "package-lock.json").read_text("utf-8"))
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []
    wanted = json.loads((UI / "package.json").read_text("utf-8"))
    assert set(wanted["dependencies"]) == {"d3-array", "d3-scale"}, "docs/decisions/dependencies.md gives the reasons"
    for group in ("dependencies", "devDependencies"):
        assert all(version[0].isdigit() for version in wanted[group].values())
        assert lock["packages"][""][group] == wanted[group]


def test_the_bundle_holds_the_licence_of_what_it_includes() -> None:
    assert re.search(r"d3-scale\.\s+Copyright [\d-]+ Mike Bostock\s+Permission to use", asset("app.js"))
