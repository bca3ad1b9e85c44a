"""Graph part of a rank without a device: its threads."""
