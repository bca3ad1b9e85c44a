"""Text in an SVG, escaped so that it stays text."""

from html import escape


def text_at(x: float, y: float, text: str, ink: str, more: str = "") -> str:
    return f'<text x="{x:.2f}" y="{y:g}" fill="{ink}" xml:space="preserve" {more}>{escape_text(text)}</text>'


def escape_text(text: str) -> str:
    return escape(clean(text), quote=False)


def clean(text: str) -> str:
    """Replace characters that XML cannot hold by spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
