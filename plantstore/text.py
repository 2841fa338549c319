"""Text for messages and settings."""

import json
import re


def words(value: object) -> list[str]:
    """Return the words of a list, or of a text in which commas or white space separate them."""
    if isinstance(value, list | tuple | set | frozenset):
        value = ",".join(map(str, value))
    return [word for word in re.split(r"[,\s]+", str(value)) if word]


def at_least(least: int, value: object) -> int:
    """Return a whole number, or raise ValueError for anything else."""
    if re.fullmatch("[0-9]{1,18}", str(value)) is None or int(str(value)) < least:
        raise ValueError(f"must be a whole number, at least {least}")
    return int(str(value))


def switch(value: object) -> bool:
    """Return whether a value is on: ``1`` or ``True``. Anything but on and off is a ValueError."""
    if value not in ("0", "1", False, True):
        raise ValueError("must be 0 or 1")
    return value in ("1", True)


def printable(text: str) -> str:
    """Return a text with the characters that are not printable escaped, as JSON does."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def one_line(text: object, longest: int | None = None) -> str:
    """Return a text, or the text of an exception, as one printable line for a message.

    A run of white space becomes one space. Other characters that are not printable are escaped.

    :param longest: the largest number of characters. A longer line ends with an ellipsis.
    """
    # The rest of a very long text takes no time.
    start = str(text) if longest is None else str(text)[: 2 * longest]
    line = printable(" ".join(start.split()))
    return line if longest is None or len(line) <= longest else f"{line[: longest - 1]}…"
