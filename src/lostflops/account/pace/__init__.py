"""What the always-on part of a capture tells of all steps of all ranks, profiled or not."""
