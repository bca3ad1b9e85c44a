"""Step time of a measured run with more or fewer ranks."""
