"""How the site is made of these pages: settings of Sphinx, which reads the Markdown that GitHub shows as well.

What stands where in the navigation is told once, by the headings and links of `index.md`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Lostflops"
html_title = "Lostflops"
extensions = ["myst_parser"]
smartquotes = False  # options and strings are to be copied as they are
myst_heading_anchors = 4  # the anchors that GitHub gives to headings
html_theme = "furo"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_use_index = False
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_last_updated_fmt = None
# Systems have good fonts, and a page that asks another host for one tells it who reads what.
_FONTS = {
    "font-stack": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
    "font-stack--monospace": "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace",
}
html_theme_options = {
    "light_css_variables": {**_FONTS, "color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {"color-brand-primary": "#7cc4f0", "color-brand-content": "#7cc4f0"},
}


def contents(index: str) -> dict[str, dict[str, str]]:
    """The pages of each section of `index.md`, with what their links say there: a section is a heading and its links.

    >>> contents("# L\\n## How-to\\nSee [A](how-to/a.md#x) and [b](how-to/b.md), [c](how-to/a.md).\\n")
    {'How-to': {'how-to/a': 'A', 'how-to/b': 'b'}}
    """
    sections: dict[str, dict[str, str]] = {}
    seen: set[str] = set()
    for section in index.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        links = re.findall(r"\[([^\]]+)\]\((?!https?:)([^)#]+)\.md(?:#[^)]*)?\)", body)
        new: dict[str, str] = {}
        for text, page in links:
            if page not in seen:
                new.setdefault(page, text)
        sections[title.strip()] = new
        seen.update(new)
    return sections


def _entry(page: str, text: str) -> str:
    """A name of the navigation's own where a link begins a sentence; else the title of the page."""
    return f"{text} <{page}>" if text[0].isupper() else page


def _add_navigation(_: Sphinx, docname: str, source: list[str]) -> None:
    if docname == "index":
        for title, pages in contents(source[0]).items():
            entries = "\n".join(_entry(page, text) for page, text in pages.items())
            source[0] += f'\n\n```{{toctree}}\n:hidden:\n:titlesonly:\n:caption: "{title}"\n\n{entries}\n```\n'


def setup(app: Sphinx) -> None:
    app.connect("source-read", _add_navigation)
