"""From the Authorization header to the client who sent it (interface section 5, RFC 6750)."""

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256

from .errors import Refused

#: From a token to the name of the client who holds it, or ``None`` for "not accepted".
VerifyToken = Callable[[str], str | None]

_B64TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_DIGEST = re.compile(r"sha256:([0-9A-Fa-f]{64})")


class StaticTokens:
    """Accepts the tokens it is given, each plain or as ``sha256:<64 hex>``.

    ``tokens`` is an iterable of them, whose clients are then called ``token-1`` and so
    on, or a mapping from each to its client's name. Raises :exc:`ValueError` for what
    can't be a bearer token (RFC 6750 section 2.1), with a message that doesn't show it,
    and :exc:`TypeError` for one bare string, whose every letter would be a token.
    """

    def __init__(self, tokens: Iterable[str] | Mapping[str, str]) -> None:
        if isinstance(tokens, str):
            raise TypeError("tokens must be a list of strings, not a string")
        if not isinstance(tokens, Mapping):
            tokens = {token: f"token-{number}" for number, token in enumerate(tokens, 1)}
        self._clients = {token_digest(token): client for token, client in tokens.items()}

    def __call__(self, token: str) -> str | None:
        """Return the name of the token's client, or ``None`` when it is not accepted."""
        # The time that a look-up takes tells of digests alone, which nobody can choose.
        return self._clients.get(sha256(token.encode()).digest())

    def __len__(self) -> int:
        """Return how many different tokens are accepted."""
        return len(self._clients)

    def __repr__(self) -> str:
        return f"<StaticTokens: {len(self)} accepted>"


def token_digest(token: str) -> bytes:
    """Return the SHA-256 digest of a token, given plain or as ``sha256:<64 hex>``.

    Raises :exc:`ValueError` for anything else, with a message that doesn't show it.
    """
    hashed = _DIGEST.fullmatch(token)
    if hashed is not None:
        return bytes.fromhex(hashed[1])
    if _B64TOKEN.fullmatch(token) is None:
        raise ValueError(
            "neither a bearer token (letters, digits and -._~+/ only, then = or not)"
            " nor sha256:<64 hex>"
        )
    return sha256(token.encode()).digest()


def authenticate(authorization: str | None, verify_token: VerifyToken) -> str:
    """Return the name of the client that a raw ``Authorization`` header stands for.

    Raises :exc:`~plantstore.errors.Refused` with 40101 when there are no bearer
    credentials at all, and with 40102 when they are malformed or not accepted; and
    :exc:`TypeError` when ``verify_token`` returns anything but a name or ``None``.
    """
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer":
        raise Refused(40101)
    token = token.lstrip(" ")
    client = verify_token(token) if _B64TOKEN.fullmatch(token) else None
    if client is None:
        raise Refused(40102)
    if not isinstance(client, str):
        # A False that means "no" must not let anybody in.
        raise TypeError(f"verify_token returned a {type(client).__name__}, not a name or None")
    return client
