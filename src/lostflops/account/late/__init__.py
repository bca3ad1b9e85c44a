"""Which rank is late, by how much, since when, and how sure? One judge for every verb, and what it is fed with."""
