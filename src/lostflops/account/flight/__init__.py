"""Diagnosis of a hang from Flight Recorder dumps: how far each rank is, and which ranks wait for which."""
