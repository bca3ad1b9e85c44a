"""Builds docs/ as a site, and fails where a link leads nowhere or a page would ask another host for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent
DEFAULT = ROOT / "build" / "site"
_LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
_LOADING_LINKS = {
    "stylesheet",
    "icon",
    "preload",
    "preconnect",
    "dns-prefetch",
    "prefetch",
    "modulepreload",
    "manifest",
}


class Page(HTMLParser):
    """What one page loads, links to, and can be linked to by."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        self.anchors.update(told[name] for name in ("id", "name") if name in told)
        if tag in _LOADING and _LOADING[tag] in told:
            self.loads.append(told[_LOADING[tag]])
        elif tag == "link" and _LOADING_LINKS & set(told.get("rel", "").split()):
            self.loads.append(told.get("href", ""))
        elif tag == "a" and "href" in told:
            self.links.append(told["href"])


def parsed(site: Path) -> dict[Path, Page]:
    return {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def elsewhere(site: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """What pages and style sheets would fetch from another host when they are opened."""
    for path, page in pages.items():
        for target in page.loads:
            if urlsplit(target).netloc:
                yield f"{path.relative_to(site.resolve())} loads {target}"
    for path in sorted(site.rglob("*.css")):
        for target in re.findall(
            r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)", path.read_text(encoding="utf-8")
        ):
            yield f"{path.relative_to(site)} loads {target}"


def broken(site: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """Links of the built pages to what is not in the site."""
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else {parts.fragment}
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in anchors):
                yield f"{path.relative_to(site.resolve())} links to {link}"


def main(arguments: list[str]) -> int:
    site = Path(arguments[0]) if arguments else DEFAULT
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "-n", "-E", "-a", "-j", "2"]
    done = subprocess.run([*command, "-d", str(site) + ".parsed", str(ROOT / "docs"), str(site)], check=False)
    if done.returncode:
        return done.returncode
    pages = parsed(site)
    wrong = [*elsewhere(site, pages), *broken(site, pages)]
    print("\n".join(wrong) if wrong else f"{len(pages)} pages in {site}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
