"""The memory ledger: what is using the memory?

At every moment each allocated byte has one owner, and owners sum to the allocator's total.
"""
