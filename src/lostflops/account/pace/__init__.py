"""Timings of all steps of all ranks, profiled or not, from the always-on part of a capture."""
