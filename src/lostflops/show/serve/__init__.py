"""Pages over HTTP, on this machine only: views load by window and zoom, and what-ifs are replayed."""
