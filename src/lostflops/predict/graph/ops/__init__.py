"""Graph part of a rank for which only ops or passes were recorded."""
