"""Graph edits that several changes share, and the selection of tasks for them."""
