"""The part of a rank of which only ops or passes were recorded."""
