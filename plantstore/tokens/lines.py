"""The lines by which a file lists access tokens."""

import re
from datetime import UTC, datetime
from typing import NamedTuple

from ..bearer import PREFIX, token_digest


class ListedToken(NamedTuple):
    """A token in a file.

    ``digest`` is its SHA-256 digest, ``client`` the name of its client, and ``expires`` the time
    from which it is no longer accepted, or ``None``. ``line`` is the number of its line.
    """

    digest: bytes
    client: str
    expires: datetime | None
    line: int

    def is_expired(self) -> bool:
        """Return whether the token is no longer accepted."""
        return self.expires is not None and self.expires <= datetime.now(UTC)

    def __str__(self) -> str:
        """Return the line of a file that lists this token by its digest."""
        return format_line(self.digest, self.client, self.expires)


def read_tokens(text: str) -> list[ListedToken]:
    """Return the tokens that the lines of a text list. There is at least one.

    A line has a token or its digest, then optionally the name of its client, then optionally
    ``expires=`` with a date or time of ISO 8601, in UTC if it has no other offset. A date is its
    first moment. ``#`` begins a comment at the start of a line or after white space.

    :raises ValueError: if a line is invalid, or there is no token. The message names the line, and
        shows nothing of it.
    """
    tokens: dict[bytes, ListedToken] = {}
    for number, line in enumerate(text.split("\n"), 1):
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
    if not tokens:
        raise ValueError("no token is configured in the file")
    return [*tokens.values()]


def format_line(digest: bytes, client: str = "", expires: datetime | None = None) -> str:
    """Return the line of a file that lists a token by its SHA-256 digest."""
    end = f"expires={format_time(expires)}" if expires else ""
    return " ".join(filter(None, [f"sha256:{digest.hex()}", client, end]))


def read_time(text: str) -> datetime:
    """Return the time that a text of ISO 8601 names, in UTC if it has no other offset.

    :raises ValueError: if it names none.
    """
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def format_time(time: datetime) -> str:
    """Return a time in UTC as a text of ISO 8601. A first moment of a date is that date."""
    text = time.isoformat().replace("+00:00", "Z")
    return text.removesuffix("T00:00:00Z")


def _read_words(words: list[str], number: int) -> ListedToken:
    word, *name = words
    try:
        digest = token_digest(word)
    except ValueError as error:
        raise ValueError(f"is {error}") from None
    if any(part.startswith((PREFIX, "sha256:")) for part in name):
        raise ValueError("has a second token")
    expires = None
    if name and name[-1].startswith("expires="):
        expires = _read_expiry(name.pop().removeprefix("expires="))
    # A mistyped option must not become a name: the token would never expire.
    if any("=" in part or part.lower().startswith(("expire", "--")) for part in name):
        raise ValueError("has an invalid name; only expires=DATE may follow the name, at its end")
    return ListedToken(digest, " ".join(name) or f"line-{number}", expires, number)


def _read_expiry(text: str) -> datetime:
    try:
        return read_time(text)
    except (ValueError, OverflowError):
        raise ValueError(
            "has an invalid expires=; write a date or time of ISO 8601, such as 2027-01-31"
        ) from None
