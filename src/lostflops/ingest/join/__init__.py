"""Facts that several files show together: windows of one rank, collectives of all ranks, one clock."""
