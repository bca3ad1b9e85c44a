"""Exports of Nsight Systems, as SQLite."""
