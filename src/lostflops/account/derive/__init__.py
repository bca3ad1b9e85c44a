"""Accounts of ranks and the timeline of a run: computed once, and stored in the run."""
