"""Make untrusted text safe for a terminal."""


def printable(text: str) -> str:
    r"""Write out control codes.

    >>> printable("a\x1b[31m")
    'a\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
