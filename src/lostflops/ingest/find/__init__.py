"""The files to read, with their format, rank and job."""
