"""A job while it runs, from the files that its collectors append to. Independent of screens and runs on disk."""
