"""Signs: facts about a run, each of which several rules read."""
