"""The command line: one file per verb.

Verbs import the engine when they run, so that help and completion load neither duckdb nor numpy.
"""
