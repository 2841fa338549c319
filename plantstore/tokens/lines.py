"""The lines by which a file lists access tokens."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..auth import PREFIX, token_digest
from ..blueprint import RIGHTS


class ListedToken(NamedTuple):
    """A token in a file.

    ``digest`` is its SHA-256 digest, ``client`` the name of its client, ``expires`` the time
    from which it is no longer accepted, or ``None``, and ``operations`` those to which it has the
    right, or ``None`` for all. ``line`` is the number of its line.
    """

    digest: bytes
    client: str
    expires: datetime | None
    operations: tuple[str, ...] | None
    line: int

    def is_expired(self) -> bool:
        """Return whether the token is no longer accepted."""
        return self.expires is not None and self.expires <= datetime.now(UTC)


def read_tokens(text: str) -> list[ListedToken]:
    """Return the tokens that the lines of a text list. There is at least one.

    A line has a token or its digest, then optionally the name of its client, then its options:

    - ``expires=`` with a date or time of ISO 8601, in UTC if it has no other offset. A date is its
      first moment. Without the option, the token never expires.
    - ``operations=`` with some of :data:`RIGHTS`, separated by commas. Without the option, the
      token has the right to all operations.

    ``#`` begins a comment at the start of a line or after white space. Each line ends with a
    newline: otherwise, a line of which only a part is written could be a token with more rights.

    :raises ValueError: if a line is invalid, or there is no token. The message names the line, and
        shows nothing of it.
    """
    tokens: dict[bytes, ListedToken] = {}
    *lines, rest = text.split("\n")
    for number, line in enumerate(lines, 1):
        if "\r" in line.removesuffix("\r"):
            raise ValueError(f"line {number} has a carriage return that is not at its end")
        words = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].split()
        if not words:
            continue
        try:
            token = _read_words(words, number)
        except ValueError as error:
            raise ValueError(f"line {number} {error}") from None
        if token.digest in tokens:
            raise ValueError(f"line {number} has the token of line {tokens[token.digest].line}")
        tokens[token.digest] = token
    if rest.strip():
        raise ValueError(f"line {len(lines) + 1} has no newline at its end: is a part missing?")
    if not tokens:
        raise ValueError("no token is configured in the file")
    return [*tokens.values()]


def _read_time(text: str) -> datetime:
    """Return the time that a text of ISO 8601 names, in UTC if it has no other offset."""
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _read_rights(text: str) -> tuple[str, ...]:
    names = text.split(",")
    if any(name not in RIGHTS for name in names):
        raise ValueError
    return tuple(dict.fromkeys(names))


# How the text of an option is read, and what it must be.
_OPTIONS: dict[str, tuple[Callable[[str], Any], str]] = {
    "expires": (_read_time, "a date or time of ISO 8601, such as 2027-01-31"),
    "operations": (_read_rights, f"some of {', '.join(RIGHTS)}, separated by commas"),
}
# What a mistyped option begins with.
_OPTION_LIKE = ("expire", "operations:", "--")


def _read_words(words: list[str], number: int) -> ListedToken:
    try:
        digest = token_digest(words[0])
    except ValueError as error:
        raise ValueError(f"is {error}") from None
    # A line that was appended to one without a newline must not become a part of its name.
    if any(word.startswith(PREFIX) or "sha256:" in word for word in words[1:]):
        raise ValueError("has a second token")
    name, options = _split(words[1:])
    # A mistyped option must not become a name: the token would never expire, or have more rights.
    if any("=" in word or word.lower().startswith(_OPTION_LIKE) for word in name):
        raise ValueError(
            "has an invalid name; only expires=DATE and operations=NAMES may follow the name"
        )
    expires, operations = (_read_option(option, options) for option in _OPTIONS)
    return ListedToken(digest, " ".join(name) or f"line-{number}", expires, operations, number)


def _split(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words of a name, and the texts of the options that follow it."""
    options: dict[str, str] = {}
    for word in reversed(words):
        option, equals, text = word.partition("=")
        if not equals or option not in _OPTIONS or option in options:
            break
        options[option] = text
    return words[: len(words) - len(options)], options


def _read_option(option: str, texts: dict[str, str]) -> Any:
    read, expected = _OPTIONS[option]
    try:
        return read(texts[option]) if option in texts else None
    except (ValueError, OverflowError):
        raise ValueError(f"has an invalid {option}=; write {expected}") from None
