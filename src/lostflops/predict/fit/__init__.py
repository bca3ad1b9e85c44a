"""Memory and throughput against batch size, from a few short runs that were measured."""
