"""Predictions for jobs that were not run: cost models, scaling, what-ifs and estimates before launch."""
