"""Text for messages."""

import json

# The longest message to a client, in characters.
_LONGEST = 500


def type_error(argument: str, expected: str, given: object) -> TypeError:
    """Return a TypeError whose message says what was expected.

    :param argument: the name of the argument.
    :param expected: what it must be, in words.
    :param given: the value. The message names only its type, since a value may be a secret.
    """
    kind = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
    return TypeError(f"{argument} must be {expected}, not {kind}")


def printable(text: str) -> str:
    """Return a text with the characters that are not printable escaped, as JSON does."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def one_line(text: object) -> str:
    """Return a text, or the text of an exception, with a space for each run of white space."""
    return " ".join(str(text).split())


def excerpt(text: str) -> str:
    """Return the start of a text, with characters that are not printable as escapes.

    It is one line of at most 500 characters.
    """
    start = text[:_LONGEST]
    if not start.isprintable():
        start = "".join(one if one.isprintable() else repr(one)[1:-1] for one in start)
    is_whole = len(start) <= _LONGEST and len(text) <= _LONGEST
    return start if is_whole else f"{start[: _LONGEST - 1]}…"
