"""Graph part of a rank with a device."""
