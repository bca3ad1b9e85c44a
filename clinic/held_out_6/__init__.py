"""The sixth held-out set: jobs of many kinds, written without sight of the rules."""

from clinic.held_out_6.patients import HELD_OUT_6

__all__ = ["HELD_OUT_6"]
