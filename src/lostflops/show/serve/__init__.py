"""The same pages over HTTP, on this machine alone: views load by window and zoom, and what-ifs are replayed."""
