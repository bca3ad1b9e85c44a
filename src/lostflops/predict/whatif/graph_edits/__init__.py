"""What several changes do to a graph, and how they find their way in it."""
