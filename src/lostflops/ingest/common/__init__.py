"""What formats share: the reader protocol, byte streams, columns, safe unpickling, names of collectives and groups."""
