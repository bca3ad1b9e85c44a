"""What-if questions about a run: asked, answered with an interval, stored and scored."""
