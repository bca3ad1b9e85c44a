"""How answers reach a person or another tool: terminal, page, server, export."""
