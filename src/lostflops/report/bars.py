"""Bars made of characters."""

from typing import Final

_EIGHTHS: Final = "▏▎▍▌▋▊▉█"


def floating_bar(start: float, stop: float, width: int, *, plain: bool = False) -> str:
    """A bar from `start` to `stop`, in percent of the width; what holds anything is never invisible.

    >>> floating_bar(50, 100, 8), floating_bar(0, 25, 8), floating_bar(99.9, 100, 8), floating_bar(30, 30, 8)
    ('    ████', '██', '       ▏', '')
    >>> floating_bar(50, 100, 8, plain=True)
    '    ####'
    """
    if stop <= start:
        return ""
    first = min(int(start * width / 100 + 0.5), width - 1)
    eighths = min(max(round((stop - start) * width * 8 / 100), 1), 8 * (width - first))
    if plain:
        return " " * first + "#" * max(round(eighths / 8), 1)
    full, part = divmod(eighths, 8)
    return " " * first + "█" * full + (_EIGHTHS[part - 1] if part else "")
