"""The collector, which runs inside the training job. It needs only the standard library and torch.

Hooks report to a `StepClock` what the training thread does; a `Recorder` turns that into records; a `Writer` writes
them to disk on its own thread. Except in `calibrate`, which is a job of its own, nothing here issues a collective,
waits for a device or raises into the program.
"""
