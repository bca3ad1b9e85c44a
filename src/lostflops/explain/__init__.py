"""The questions: analyses of one run, causes of its losses, comparisons of runs."""
