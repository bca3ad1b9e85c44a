"""Memory and throughput against batch size, from a few short measured runs."""
