"""Snapshots of PyTorch's CUDA allocator."""
