"""The change `zero`, with the places where parameters are gathered and the memory of the fullest rank."""

from lostflops.predict.whatif.changes.zero.change import CHANGE

__all__ = ["CHANGE"]
