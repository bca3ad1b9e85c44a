"""Work on ranks, spread over processes or machines. Work across ranks is not part of this package."""
