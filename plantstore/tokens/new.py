"""New tokens."""

import secrets

from ..auth import PREFIX, token_digest
from .file import parse


def make_token(words: str) -> tuple[str, str]:
    """Return a new token, and the line of a file that lists its digest.

    :param words: the rest of the line: the name of the client, and the options.
    :raises ValueError: if no line can have them. The message begins with ``line 1``.
    """
    token = PREFIX + secrets.token_urlsafe(32)
    line = " ".join([f"sha256:{token_digest(token).hex()}", *words.split()])
    (listed,) = parse(f"{line}\n".encode(errors="surrogateescape"))
    if " #" in line or listed.is_expired():
        raise ValueError("line 1 has a comment, or a date in the past")
    return token, line
