"""What rules read of a run: several of them need each."""
