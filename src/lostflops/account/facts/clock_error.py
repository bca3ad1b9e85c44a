"""The difference from which times of two ranks count as different."""

from typing import Final

RESOLUTION: Final = 3
"""Times of two ranks differ if they are more than this many times the typical distance of the ranks' ends apart."""
