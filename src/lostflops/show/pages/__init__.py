"""What a page about a run holds: which questions are answered, in which order, and what words mean."""
