"""Runs of a fleet whose own pages are open: few at a time, and only those in folders that the owner named.

A row of a fleet may come from anybody, and says where its run is. So an address is used only if it is a run in one of
these folders: a row cannot make a server read something else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lostflops.account.derive.derive import with_accounts
from lostflops.core.errors import UsageError
from lostflops.show.serve.limits import ServeLimits
from lostflops.show.serve.live import LivePage
from lostflops.store.manifest import FILE_NAME
from lostflops.store.run import Run

MOST_OPEN: Final = 3
"""Each may hold millions of events in memory, and has processes of its own."""


class OpenedRuns:
    """The pages of runs that were opened last."""

    def __init__(self, folders: Sequence[Path], limits: ServeLimits | None = None) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._limits = limits
        self._pages: dict[Path, LivePage] = {}
        self._lock = asyncio.Lock()

    def find_folder(self, address: str) -> Path | None:
        """Return the folder of a run that may be opened, or None."""
        try:
            path = Path(address).resolve()
            is_inside = any(path.is_relative_to(folder) for folder in self._folders)
            return path if is_inside and (path / FILE_NAME).is_file() else None
        except (OSError, ValueError, RuntimeError):  # RuntimeError: a link to itself, before Python 3.13
            return None

    async def open(self, address: str) -> LivePage:
        """Return the page of a run; the one that was asked about least recently is closed if there are many."""
        path = self.find_folder(address)
        if path is None:
            raise UsageError("this run is not in a folder that the server may open")
        async with self._lock:
            page = self._pages.pop(path, None)
            if page is None:
                await self._make_room()
                page = await asyncio.to_thread(_open_page, path, self._limits)
            self._pages[path] = page
            return page

    async def _make_room(self) -> None:
        while len(self._pages) >= MOST_OPEN:
            oldest = self._pages.pop(next(iter(self._pages)))
            await asyncio.to_thread(oldest.close)

    def close(self) -> bool:
        """Stop all work; return whether it ended."""
        ended = [page.close() for page in self._pages.values()]  # all of them, also after one that did not end
        return all(ended)


def _open_page(path: Path, limits: ServeLimits | None) -> LivePage:
    with_accounts(Run.open(path), None).close()  # computes ledgers that the run lacks, before the page asks for them
    return LivePage(path, limits=limits)
