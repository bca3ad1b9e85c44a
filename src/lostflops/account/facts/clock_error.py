"""How far apart times of two ranks must be to differ."""

from typing import Final

RESOLUTION: Final = 3
"""Times the typical distance of the ends of two ranks that a difference of their times must exceed."""
