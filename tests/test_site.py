"""The site: what its builder finds wrong, and outputs in pages that are those of the verbs."""

from __future__ import annotations

import doctest
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def loaded(path: str) -> ModuleType:
    spec = spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


conf, build_site, outputs = (loaded(path) for path in ("docs/conf.py", "scripts/build_site.py", "scripts/outputs.py"))


def site(folder: Path, **pages: str) -> Path:
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(f"<html><body>{body}</body></html>")
    return folder


def loads(made: Path) -> list[str]:
    return list(build_site.elsewhere(made, build_site.parsed(made)))


@pytest.mark.parametrize("module", [conf, outputs], ids=lambda module: module.__name__)
def test_examples_of_the_builder_are_true(module: ModuleType) -> None:
    assert doctest.testmod(module) == (0, 1 if module is conf else 2)


def test_every_page_is_in_the_navigation() -> None:
    docs = ROOT / "docs"
    listed = [
        page for pages in conf.contents((docs / "index.md").read_text(encoding="utf-8")).values() for page in pages
    ]
    there = [str(path.relative_to(docs).with_suffix("")) for path in docs.rglob("*.md") if path.name != "index.md"]
    assert sorted(listed) == sorted(there)


def test_links_and_anchors_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    made = site(
        tmp_path,
        a='<a href="b.html#x">1</a><a href="c.html">2</a><a href="#no">3</a>',
        b='<p id="x"></p><a href="a.html">4</a>',
    )
    assert list(build_site.broken(made, build_site.parsed(made))) == ["a.html links to c.html", "a.html links to #no"]


@pytest.mark.parametrize(
    "body",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/x.css">',
        '<img src="http://tracker.example/x.gif">',
    ],
)
def test_what_comes_from_another_host_is_found(tmp_path: Path, body: str) -> None:
    link = '<a href="https://pytorch.org">a link is no load</a>'
    assert len(loads(site(tmp_path, a=body))) == 1
    assert loads(site(tmp_path, a=link)) == []


def test_fonts_of_style_sheets_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(
        '@import "https://fonts.example/a.css"; b { background: url(data:image/png;base64,x) }'
    )
    assert loads(tmp_path) == ["a.css loads https://fonts.example/a.css"]


@pytest.mark.slow
def test_all_pages_say_what_the_verbs_say(tmp_path: Path) -> None:
    demo = outputs.Demo(tmp_path)
    assert [path for path, _ in outputs.stale(outputs.pages(), demo)] == []
    report = " ".join(demo.says("lostflops report demo-run").split())
    told = ("device busy 97.0%", "8 ranks compute for 57.5%", "MFU is 29.6%")
    busy = (ROOT / "docs/explanation/what-teaching-gets-wrong.md").read_text(encoding="utf-8")
    assert all(words in report and words.split()[-1] in busy for words in told)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("sphinx") is None, reason="the group docs is not installed")
def test_the_site_builds(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "scripts" / "build_site.py", tmp_path / "site"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
