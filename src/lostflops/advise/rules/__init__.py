"""Causes of lost time, one rule per file; a new one is one file and one line here."""

from typing import Final

from lostflops.advise.claim import Rule

RULES: Final[tuple[Rule, ...]] = ()
