"""Output of answers for a person or another tool: terminal, page, server, export."""
