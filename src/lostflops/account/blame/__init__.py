"""Which ranks are late, and why? Ledgers of all ranks and their meetings give the answer."""
