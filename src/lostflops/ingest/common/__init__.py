"""Shared parts of formats: the reader protocol, bytes, columns, safe unpickling, names of collectives and groups."""
