"""What communication and compute cost: fitted to measurements of a cluster, or from published constants."""
