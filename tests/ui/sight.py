"""How colours look: contrast, difference and chroma, for all kinds of sight. A colour is linear red, green and blue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

Colour = tuple[float, float, float]
Matrix = tuple[Colour, Colour, Colour]

SIGHTS: Final[dict[str, Matrix]] = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""What each kind of sight makes of linear light, at severity 1.0: Machado, Oliveira and Fernandes, "A Physiologically-
based Model for Simulation of Color Vision Deficiency", IEEE TVCG 15(6), 2009."""
_TO_XYZ: Final[Matrix] = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)
_TO_CONES: Final[Matrix] = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_TO_OKLAB: Final[Matrix] = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)


def parse_hex(text: str) -> Colour:
    red, green, blue = (_linear(int(text[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return red, green, blue


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """Return what an eye sees of a fine pattern of two colours, `share` of it the first."""
    red, green, blue = (share * one + (1 - share) * other for one, other in zip(first, second, strict=True))
    return red, green, blue


def contrast(first: Colour, second: Colour) -> float:
    """Return the contrast ratio of WCAG 2.2."""
    low, high = sorted(_times(_TO_XYZ, colour)[1] for colour in (first, second))
    return (high + 0.05) / (low + 0.05)


def oklch(colour: Colour) -> tuple[float, float, float]:
    """Return lightness, chroma and hue in degrees (Ottosson, "A perceptual color space for image processing", 2020)."""
    red, green, blue = (math.cbrt(cone) for cone in _times(_TO_CONES, colour))
    light, a, b = _times(_TO_OKLAB, (red, green, blue))
    return light, math.hypot(a, b), math.degrees(math.atan2(b, a)) % 360


def difference(first: Colour, second: Colour, sight: str = "normal") -> float:
    """Return how different two colours look with a kind of sight, as CIEDE2000."""
    return ciede2000(*(_cielab(_times(SIGHTS[sight], colour)) for colour in (first, second)))


def ciede2000(first: Colour, second: Colour) -> float:
    """Return the difference of two colours in CIELAB: Sharma, Wu and Dalal, "The CIEDE2000 Color-Difference Formula:
    Implementation Notes, Supplementary Test Data, and Mathematical Observations", Color Research and Application 30(1),
    2005."""
    (light1, a1, b1), (light2, a2, b2) = first, second
    g = 0.5 * (1 - _saturated((math.hypot(a1, b1) + math.hypot(a2, b2)) / 2))
    chroma1, chroma2 = math.hypot(a1 * (1 + g), b1), math.hypot(a2 * (1 + g), b2)
    hue1 = math.degrees(math.atan2(b1, a1 * (1 + g))) % 360
    hue2 = math.degrees(math.atan2(b2, a2 * (1 + g))) % 360
    turn = (hue2 - hue1 + 180) % 360 - 180 if chroma1 * chroma2 else 0.0
    light, chroma = (light1 + light2) / 2, (chroma1 + chroma2) / 2
    hue = (hue1 + turn / 2) % 360 if chroma1 * chroma2 else hue1 + hue2
    t = 1 - 0.17 * _cos(hue - 30) + 0.24 * _cos(2 * hue) + 0.32 * _cos(3 * hue + 6) - 0.20 * _cos(4 * hue - 63)
    by_light = (light2 - light1) / (1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2))
    by_chroma = (chroma2 - chroma1) / (1 + 0.045 * chroma)
    by_hue = 2 * math.sqrt(chroma1 * chroma2) * math.sin(math.radians(turn / 2)) / (1 + 0.015 * chroma * t)
    rotated = -2 * _saturated(chroma) * math.sin(math.radians(60 * math.exp(-(((hue - 275) / 25) ** 2))))
    return math.sqrt(by_light**2 + by_chroma**2 + by_hue**2 + rotated * by_chroma * by_hue)


def _saturated(chroma: float) -> float:
    return math.sqrt(chroma**7 / (chroma**7 + 25**7))


def _cos(degrees: float) -> float:
    return math.cos(math.radians(degrees))


def _linear(share: float) -> float:
    return share / 12.92 if share <= 0.04045 else float(((share + 0.055) / 1.055) ** 2.4)


def _times(matrix: Matrix, colour: Sequence[float]) -> Colour:
    first, second, third = (sum(a * b for a, b in zip(row, colour, strict=True)) for row in matrix)
    return first, second, third


def _cielab(colour: Colour) -> Colour:
    white = _times(_TO_XYZ, (1.0, 1.0, 1.0))
    found = _times(_TO_XYZ, [min(1.0, max(0.0, part)) for part in colour])
    x, y, z = (_bent(part / whole) for part, whole in zip(found, white, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _bent(share: float) -> float:
    return math.cbrt(share) if share > 216 / 24389 else (24389 / 27 * share + 16) / 116
