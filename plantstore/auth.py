"""Bearer tokens, and the authentication by them (RFC 6750)."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from inspect import iscoroutinefunction
from typing import Any

from werkzeug.local import LocalProxy

from .errors import Refused

# A bearer token (RFC 6750 section 2.1).
_B64TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
# The form of a digest in the settings.
_DIGEST = re.compile(r"sha256:([0-9A-Fa-f]{64})")
#: The prefix of each token that this package makes. Random characters follow.
PREFIX = "plt_"


def token_digest(token: str) -> bytes:
    """Return the SHA-256 digest of a token.

    :param token: plain text, or ``sha256:<64 hex>``.
    :raises ValueError: if the token has another form. The message does not show the token.
    """
    hashed = _DIGEST.fullmatch(token)
    if hashed is not None:
        return bytes.fromhex(hashed[1])
    if _B64TOKEN.fullmatch(token) is None:
        raise ValueError(
            "neither a bearer token (letters, digits and -._~+/, then any number of =)"
            " nor sha256:<64 hex>"
        )
    return sha256(token.encode()).digest()


@dataclass(frozen=True)
class Client:
    """The client of a token that has the right to some operations only.

    :param name: the name of the client.
    :param operations: the names of the operations, such as ``create`` and ``read``, and
        ``metrics`` for ``GET /metrics``. By default, the token has the right to all of them.
    :raises TypeError: if the operations are a single string.
    """

    name: str
    operations: Collection[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.operations, str):  # A part of a string is "in" it, too.
            raise TypeError('operations must be a list of names, such as ["create", "read"]')


#: A function that takes a bearer token and returns the name of its client, or a :class:`Client` if
#: the token has only some rights, or ``None`` if the token is not accepted.
VerifyToken = Callable[[str], str | Client | None]


class StaticTokens:
    """Accepts a fixed set of tokens, and keeps only their SHA-256 digests.

    Called with a token, it returns the token's client, or ``None`` if the token is not accepted.

    :param tokens: the tokens, or a mapping from each token to the name of its client, or to a
        :class:`Client`. Each token is plain text or ``sha256:<64 hex>``. Without a mapping the
        clients are named ``token-1``, ``token-2`` and so on.
    :raises TypeError: if ``tokens`` is a single string.
    :raises ValueError: if there is no token, or if a token is neither a bearer token (RFC 6750
        section 2.1) nor ``sha256:<64 hex>``. The message does not show the token.
    """

    def __init__(self, tokens: Iterable[str] | Mapping[str, str | Client]) -> None:
        if isinstance(tokens, str | bytes):
            raise TypeError("tokens must be a list of tokens, or a mapping of tokens to clients")
        if not isinstance(tokens, Mapping):
            tokens = {token: f"token-{number}" for number, token in enumerate(tokens, 1)}
        if not tokens:
            raise ValueError("tokens must contain at least one token")
        try:
            self._clients = {token_digest(token): client for token, client in tokens.items()}
        except ValueError as error:
            keys = "the keys of a mapping are the tokens, its values the names of the clients"
            raise ValueError(f"a token is {error}; {keys}") from None

    def __call__(self, token: str) -> str | Client | None:
        """Return the token's client, or ``None`` if the token is not accepted."""
        # A client cannot choose the digest of its token, so the time of the lookup reveals nothing.
        return self._clients.get(sha256(token.encode()).digest())

    def __len__(self) -> int:
        """Return the number of accepted tokens."""
        return len(self._clients)

    def __repr__(self) -> str:
        return f"<StaticTokens: {len(self)} accepted>"


def check_verify_token(verify_token: Any) -> None:
    """Refuse a token check that would accept every token, or fail in each request.

    :param verify_token: a function, or a proxy of one.
    :raises TypeError: if it cannot be called, or is a class or a coroutine function.
    """
    if isinstance(verify_token, LocalProxy):
        return  # The function behind a proxy is known only during a request.
    is_function = callable(verify_token) and not isinstance(verify_token, type)
    if not is_function or any(
        map(iscoroutinefunction, (verify_token, type(verify_token).__call__))
    ):
        raise TypeError("verify_token must be a function, and neither a class nor asynchronous")


def authenticate(authorization: str | None, verify_token: VerifyToken) -> str | Client:
    """Return the client who sent an ``Authorization`` header.

    :param authorization: the value of the header, or ``None`` if there is none.
    :param verify_token: returns a token's client.
    :raises Refused: 40101 if there are no bearer credentials, 40102 if they are malformed or not
        accepted.
    :raises TypeError: if ``verify_token`` returns anything but a name, a Client or ``None``.
    """
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer":
        raise Refused(40101)
    token = token.lstrip(" ")
    if _B64TOKEN.fullmatch(token) is None:
        raise Refused(40102, reason="The token is malformed.")
    client = verify_token(token)
    if client is None:
        raise Refused(40102, reason="The token is unknown.")
    if not isinstance(client, str | Client):
        # A function that returns False must not admit a client.
        raise TypeError(
            f"verify_token must return a name, a Client or None, not {type(client).__name__}"
        )
    return client
