"""Who is late, and why: from the ledgers of all ranks and their meetings."""
