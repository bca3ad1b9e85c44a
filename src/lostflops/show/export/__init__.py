"""Export of a run as bytes that other tools read."""
