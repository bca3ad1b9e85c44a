"""Records of our own collector."""
