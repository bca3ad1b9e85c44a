"""Which modules backward should compute again instead of keeping what they leave: bytes, ms, and the best choices.

`calls` reads when modules ran, `kept` what a module's call leaves in memory, `options` what each choice moves, `choose`
the cheapest choice below a peak and all that are worth it, `edit` the memory with a choice made, `tables` shows them.
"""
