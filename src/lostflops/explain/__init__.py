"""Analyses of one run, causes of its losses, and comparisons of runs."""
