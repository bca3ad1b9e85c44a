"""Step time and memory of a job before it is launched, from a description of its model."""
