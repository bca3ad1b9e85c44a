"""Questions about a run that was not: asked, answered with an interval, kept and scored."""
