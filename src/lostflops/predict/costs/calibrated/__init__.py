"""Reports on a calibration: verdicts, tables and plots."""
