"""Content of a page about a run: its questions, their order, and a glossary."""
