"""Dumps of the c10d Flight Recorder."""
