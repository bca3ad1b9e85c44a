"""A run as a graph of tasks and their dependencies, and its replay."""
