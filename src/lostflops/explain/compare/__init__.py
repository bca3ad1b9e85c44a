"""Whether one job is faster than another, by how much, and where: several runs of each where there are."""
