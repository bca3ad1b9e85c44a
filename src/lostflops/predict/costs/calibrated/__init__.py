"""What a calibration says, for people."""
