"""What a job would take that was not run: cost models, scaling and estimates before launch."""
