"""Which files there are to read, of which format, rank and job."""
