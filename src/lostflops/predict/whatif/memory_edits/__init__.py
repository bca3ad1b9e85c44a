"""Edits of the blocks in a rank's memory that several changes share."""
