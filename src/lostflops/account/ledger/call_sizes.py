"""Size of a recorded call as bandwidths count it: the gathered tensor for all-gather, the tensor of one rank for gather
and scatter, the input otherwise."""

from typing import Final

SIZE: Final = """case when op = 'all_gather' then coalesce(bytes_out, bytes_in * group_size)
    when op = 'reduce_scatter' then coalesce(bytes_in, bytes_out * group_size)
    when op = 'gather' then coalesce(bytes_in, bytes_out // group_size)
    when op = 'scatter' then coalesce(bytes_out, bytes_in // group_size)
    else coalesce(bytes_in, bytes_out) end"""
"""SQL over `collectives`; a size that one side did not record follows from the other and the group."""
