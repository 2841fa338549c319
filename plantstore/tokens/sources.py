"""The tokens of a service: those that a setting lists, and those of a file."""

from collections.abc import Sequence

from ..auth import Client, StaticTokens, VerifyToken, token_digest
from ..text import words
from .file import TokenFile, name_expired, read_file


def read_listed(value: object) -> list[str]:
    """Return the tokens of a list, or of a text in which commas or white space separate them.

    :raises ValueError: if one is neither a bearer token nor a digest. The message has its place,
        and shows nothing of it.
    """
    tokens = words(value or "")
    for number, token in enumerate(tokens, 1):
        try:
            token_digest(token)
        except ValueError as error:
            raise ValueError(f"token number {number} is {error}") from None
    return tokens


def make_check(listed: Sequence[str], path: str) -> VerifyToken:
    """Return a token check that accepts the listed tokens, and those of a file.

    :param path: the path of the file, or an empty string if there is none.
    :raises OSError: if the file cannot be read.
    :raises ValueError: if it is not a file of tokens.
    """
    checks: list[VerifyToken] = [StaticTokens(listed)] if listed else []
    if path:
        checks.append(TokenFile(path))
    return _any_of(checks) if len(checks) > 1 else checks[0]


def _any_of(checks: Sequence[VerifyToken]) -> VerifyToken:
    """Return a token check that accepts what any of several checks accepts."""

    def verify_token(token: str) -> str | Client | None:
        clients = (check(token) for check in checks)
        return next((client for client in clients if client is not None), None)

    return verify_token


def count_tokens(listed: Sequence[str], path: str) -> str:
    """Return how many tokens each setting has, in words, or raise as :func:`make_check` does."""
    sources = [f"{len(listed)} from PLANTSTORE_TOKENS"] if listed else []
    if path:
        _, in_file = read_file(path)
        sources.append(f"{len(in_file)} from PLANTSTORE_TOKENS_FILE{name_expired(in_file)}")
    return ", ".join(sources)
