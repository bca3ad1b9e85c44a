"""One verb per file; verbs do not import each other."""
