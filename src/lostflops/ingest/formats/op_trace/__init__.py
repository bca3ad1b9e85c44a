"""Traces of operations without kernels, as Parquet."""
