"""Logs of NCCL (`NCCL_DEBUG=INFO`)."""
