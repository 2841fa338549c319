"""Authentication by the Authorization header (interface section 5, RFC 6750)."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from inspect import iscoroutinefunction, signature
from typing import Any

from werkzeug.local import LocalProxy

from .bearer import B64TOKEN, describe_unknown, token_digest
from .errors import Refused
from .text import type_error


@dataclass(frozen=True)
class Client:
    """The client of a token that has the right to some operations only.

    :param name: the name of the client.
    :param operations: the operations: ``create``, ``read``, ``list``, ``delete``, and ``metrics``.
        By default, the token has the right to all of them.
    :raises TypeError: if the name is not a string, or the operations are a single string or not a
        collection.
    """

    name: str
    operations: Collection[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise type_error("the name of a client", "a string", self.name)
        # Every part of "create" would be "in" it.
        if isinstance(self.operations, str) or not isinstance(self.operations, Collection | None):
            expected = 'a collection of names, such as ["create", "read"]'
            raise type_error("operations", expected, self.operations)


#: A function that takes a bearer token and returns the name of its client, or a :class:`Client` if
#: the token has only some rights, or ``None`` if the token is not accepted.
VerifyToken = Callable[[str], str | Client | None]


class StaticTokens:
    """Accepts a fixed set of tokens, and keeps only their SHA-256 digests.

    Called with a token, it returns the token's client, or ``None`` if the token is not accepted.

    :param tokens: the tokens, or a mapping from each token to the name of its client, or to a
        :class:`Client`. Each token is plain text or ``sha256:<64 hex>``. Without a mapping the
        clients are named ``token-1``, ``token-2`` and so on.
    :raises TypeError: if ``tokens`` is neither an iterable nor a mapping, if it is a single
        string, if a token is not a string, or a client neither a string nor a :class:`Client`.
    :raises ValueError: if there is no token, or if a token is neither a bearer token (RFC 6750
        section 2.1) nor ``sha256:<64 hex>``. The message does not show the token.
    """

    def __init__(self, tokens: Iterable[str] | Mapping[str, str | Client]) -> None:
        named = [*(tokens.items() if isinstance(tokens, Mapping) else _numbered(tokens))]
        if not named:
            raise ValueError("tokens must contain at least one token")
        for token, client in named:
            if not isinstance(token, str):
                raise type_error("a token", "a string", token)
            if not isinstance(client, str | Client):
                raise type_error("a client", "a name or a Client", client)
        try:
            self._clients = {token_digest(token): client for token, client in named}
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


def any_of(*checks: VerifyToken) -> VerifyToken:
    """Return a token check that accepts what any of several checks accepts."""

    def verify_token(token: str) -> str | Client | None:
        clients = (check(token) for check in checks)
        return next((client for client in clients if client is not None), None)

    return verify_token


def check_verify_token(verify_token: Any) -> None:
    """Check an argument ``verify_token``: a function that takes a token, or a proxy of one.

    :param verify_token: the argument.
    :raises TypeError: for anything else, such as a class or a coroutine function.
    """
    if isinstance(verify_token, LocalProxy):
        return
    expected = "a function that takes a token and returns a name, a Client or None"
    if isinstance(verify_token, type):
        raise type_error("verify_token", expected, verify_token)
    if iscoroutinefunction(verify_token) or iscoroutinefunction(type(verify_token).__call__):
        raise TypeError("verify_token must not be a coroutine function")
    try:
        signature(verify_token).bind("token")
    except TypeError:
        raise type_error("verify_token", expected, verify_token) from None
    except ValueError:
        pass  # A function that is written in C may have no signature.


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
    if B64TOKEN.fullmatch(token) is None:
        raise Refused(40102, reason="The token is malformed.")
    client = verify_token(token)
    if client is None:
        raise Refused(40102, reason=describe_unknown(token))
    if not isinstance(client, str | Client):
        # A function that returns False must not admit a client.
        raise type_error("the result of verify_token", "a name, a Client or None", client)
    return client


def _numbered(tokens: object) -> Iterable[tuple[str, str]]:
    if isinstance(tokens, str | bytes) or not isinstance(tokens, Iterable):
        expected = "a list of tokens, or a mapping with tokens as its keys and names as its values"
        raise type_error("tokens", expected, tokens)
    return ((token, f"token-{number}") for number, token in enumerate(tokens, 1))
