"""Alignment of ranks: matched collectives, one common clock, and the waits of ranks for each other."""
