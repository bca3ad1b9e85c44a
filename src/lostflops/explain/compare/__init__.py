"""Is one job faster than another, by how much, and where? Each side may have several runs."""
