"""`zero=`: the change, where parameters are gathered, and what the fullest rank holds."""

from lostflops.predict.whatif.changes.zero.change import CHANGE

__all__ = ["CHANGE"]
