"""Text without the characters that would control a terminal or begin a new line."""

import json


def printable(text: str) -> str:
    """Return a text with the characters that are not printable escaped, as JSON does."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
