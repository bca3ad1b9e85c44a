"""A job while it runs, from the files that its collectors append to; knows no screen and no run on disk."""
