"""Callbacks for training frameworks, one file each. Each imports its framework; nothing else in the package does."""
