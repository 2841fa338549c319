"""Integers in a URL."""

import re

# 19 digits are enough for int64. Python refuses to convert thousands of them.
_CANONICAL = re.compile("0|-?[1-9][0-9]{0,18}")


def parse_integer(text: str) -> int | None:
    """Return an integer that is written in its canonical decimal form, or ``None``.

    The form has no plus sign, no leading zero and no white space. It is that of every int64.
    """
    return int(text) if _CANONICAL.fullmatch(text) else None
