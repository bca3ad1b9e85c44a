"""Answers in the form that a page reads: JSON, packed as in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lostflops.core.results import Page
from lostflops.show.report.view import View, pack_data


def pack_page(page: Page) -> bytes:
    view = View()
    return pack_view(view.page(replace(page, glossary={})), view)


def pack_view(data: Mapping[str, Any], view: View) -> bytes:
    return json.dumps(pack_data(data, view.blobs)).encode()
