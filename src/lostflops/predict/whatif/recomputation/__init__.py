"""Modules that backward could recompute instead of keeping their activations: bytes, ms, and the best choices.

`calls` reads when modules ran, `kept` what a module's call leaves in memory, `options` the effect of each choice,
`choose` the cheapest choice below a peak and all that are worth it, `edit` the memory with a choice made, `tables`
shows them.
"""
