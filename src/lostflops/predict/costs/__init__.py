"""Costs of communication and compute, fitted to measurements of a cluster or from published constants."""
