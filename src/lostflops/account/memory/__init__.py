"""Whose byte is it: the second ledger, of memory. At every moment each allocated byte has one owner, and owners sum to
what the allocator says."""
