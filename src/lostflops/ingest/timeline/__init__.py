"""The events of one rank, whatever format they come from, and the rows they become."""
