"""What a machine and its PyTorch can and cannot measure, and why."""
