"""A page as one self-contained HTML file: the bundle of the web UI, and data that cannot be executed.

Names in traces are hostile. Data is deflated and in base64, in elements that no browser executes; the UI sets text as
text; the content security policy allows our script and our style by their hashes, and no request at all.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TextIO

from lostflops.core.errors import UsageError
from lostflops.core.results import Figure, Page, Result
from lostflops.core.units import format_bytes
from lostflops.show.report.view import View, pack_data


def check_file(file: Path) -> None:
    """Raise an error if a page cannot be written: it is better to know before minutes are spent on answers."""
    if file.is_dir():
        raise UsageError(f"{file} is a folder: name a file")
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}")


def save_page(page: Page, file: Path) -> Result:
    """Write a page over what was there before, and return how large it is."""
    half = file.with_name(f".{file.name}.part")
    half.unlink(missing_ok=True)  # in a stranger's run it may be a link to anything
    try:
        with half.open("x", encoding="utf-8") as stream:
            write_page(page, stream)
        half.replace(file)
    finally:
        half.unlink(missing_ok=True)
    size = file.stat().st_size
    return Result(
        name="page_file",
        title="Page",
        verdict=f"Wrote {file} ({format_bytes(size)}): one file that any browser opens, without a network.",
        notes=tuple(f"Not available: {name} ({why})" for name, why in page.missing),
        more=(Figure("file", str(file)), Figure("bytes", size)),
    )


def write_page(page: Page, stream: TextIO) -> None:
    view = View()
    data = pack_data(view.page(page), view.blobs)
    script, style = asset("app.js"), asset("app.css")
    stream.write(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(script, style)}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(page.title)} · lostflops</title><style>{style}</style></head><body>"
    )
    stream.writelines(f'<script type="text/plain" class="data">{one}</script>' for one in data)
    stream.write(f'<div id="app"></div><script type="module">{script}</script></body></html>')


def asset(name: str) -> str:
    return (files("lostflops.show.report") / "assets" / name).read_text("utf-8")


def policy(script: str, style: str) -> str:
    """Return the content security policy of a page.

    >>> policy("", "").split("; ")[0]
    "default-src 'none'"
    """
    allowed = f"script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    return f"default-src 'none'; {allowed}; img-src data: blob:; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
