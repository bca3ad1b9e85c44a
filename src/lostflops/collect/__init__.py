"""What runs inside the training job. Imports the standard library, torch and the names of a capture's files, nothing
else.

Hooks tell a `StepClock` what the training thread does; a `Recorder` turns that into records; a `Writer` brings them to
disk on a thread of its own. Nothing here issues a collective, waits for a device or raises into the program.
"""
