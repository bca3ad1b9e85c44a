"""What a job will take before it is launched, from a description of its model."""
