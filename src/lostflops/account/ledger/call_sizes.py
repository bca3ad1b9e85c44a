"""The size of a recorded call as bandwidths count it: of the gathered tensor for all-gather, of the input otherwise."""

from typing import Final

SIZE: Final = """case when op = 'all_gather' then coalesce(bytes_out, bytes_in * group_size)
    when op = 'reduce_scatter' then coalesce(bytes_in, bytes_out * group_size)
    else coalesce(bytes_in, bytes_out) end"""
"""In SQL over `collectives`; what one side did not tell follows from the other and the group."""
