"""Work on ranks spread over processes or machines; what crosses ranks is no business of this package."""
