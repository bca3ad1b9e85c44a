"""Where ranks stand by their Flight Recorder dumps, and who waits for whom: what a hang is told by."""
