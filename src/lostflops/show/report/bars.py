"""Bars and shades made of characters."""

from typing import Final

_EIGHTHS: Final = "▏▎▍▌▋▊▉█"
_SHADES: Final = "·░▒▓█"
_PLAIN_SHADES: Final = ".-+*#"


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


def shade(value: float | None, largest: float, *, plain: bool = False) -> str:
    """A character that is darker the larger the value; what is not known is a question mark.

    >>> "".join(shade(value, 4) for value in (0, 1, 2, 3, 4, None, -1))
    '·░▒▓█?·'
    >>> "".join(shade(value, 4, plain=True) for value in (0, 1, 2, 3, 4, None))
    '.-+*#?'
    """
    shades = _PLAIN_SHADES if plain else _SHADES
    if value is None:
        return "?"
    return shades[0 if largest <= 0 else max(0, min(round(value / largest * 4), 4))]
