"""The events of one rank, from any format, and the rows they become."""
