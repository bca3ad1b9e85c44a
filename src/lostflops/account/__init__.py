"""Facts about recorded time and memory, without advice.

This package reads a run and returns sums, intervals and comparisons of its ranks. It answers no question of a user.
"""
