"""A run as bytes that other tools read."""
