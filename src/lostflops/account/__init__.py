"""What is true of recorded time and memory, before any opinion.

Reads a run; returns sums, intervals and comparisons of its ranks. It answers no question of a user.
"""
