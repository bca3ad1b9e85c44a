"""The whole job: from the start of its command to its exit, and how it ended."""
