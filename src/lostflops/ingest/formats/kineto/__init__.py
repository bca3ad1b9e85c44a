"""Traces of torch.profiler, as JSON."""
