"""The settings ``PLANTSTORE_*``: the same names in the environment and in ``app.config``."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.util import find_spec
from logging import Formatter
from typing import Any, TypeVar

from .auth import StaticTokens, VerifyToken
from .bearer import token_digest
from .blueprint import check_operations
from .body import DEFAULT_MAX_BODY
from .observability.log_format import FORMATTERS
from .stores.base import Store
from .stores.urls import open_store
from .tokens.file import TokenFile, describe_fault, name_expired, read_file

_T = TypeVar("_T")

#: The default URL of the store.
DEFAULT_STORE = "memory://"


#: The names of the settings.
NAMES = (
    "PLANTSTORE_TOKENS",
    "PLANTSTORE_TOKENS_FILE",
    "PLANTSTORE_STORE",
    "PLANTSTORE_MAX_BODY",
    "PLANTSTORE_OPERATIONS",
    "PLANTSTORE_METRICS",
    "PLANTSTORE_LOG",
)
# The variables that Kubernetes sets for a service whose name is or begins with plantstore.
_KUBERNETES = re.compile(
    r"PLANTSTORE_([A-Z0-9_]+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


class SettingsError(ValueError):
    """A setting is missing or wrong. The message names the setting and shows no secret."""


@dataclass(frozen=True)
class Settings:
    """The settings of the standalone service. A setting is read and checked when it is used.

    :param source: the values by name, such as ``os.environ``. They are not in the ``repr``.
    """

    source: Mapping[str, Any] = field(repr=False)

    def check_names(self) -> None:
        """Check that every name that begins with ``PLANTSTORE_`` is that of a setting.

        The variables that Kubernetes sets are allowed.

        :raises SettingsError: if one is not. The message suggests the nearest name.
        """
        for name in self.source:
            if name.startswith("PLANTSTORE_") and not _is_known(name):
                (nearest, *_) = get_close_matches(name.upper(), NAMES, 1, 0)
                shown = name if name.isprintable() else ascii(name)
                raise SettingsError(f"{shown} is not a setting. Did you mean {nearest}?")

    @property
    def verify_token(self) -> VerifyToken:
        """The token check: accepts the tokens of the two token settings.

        The file of tokens is read again when it changes.

        :raises SettingsError: if no token is configured, if a token is malformed, or if the
            file of tokens cannot be read. The service never starts without authentication.
        """
        listed, file = self._listed_tokens(), self._from_file(TokenFile)
        if file is None:
            return StaticTokens(listed)
        return _first_of(file, StaticTokens(listed)) if listed else file

    @property
    def token_sources(self) -> str:
        """How many tokens each setting has, and which have expired, in words.

        :raises SettingsError: as for :attr:`verify_token`.
        """
        listed, in_file = self._listed_tokens(), self._from_file(read_file)
        sources = [f"{len(listed)} from PLANTSTORE_TOKENS"] if listed else []
        if in_file is not None:
            sources.append(f"{len(in_file)} from PLANTSTORE_TOKENS_FILE{name_expired(in_file)}")
        return ", ".join(sources)

    def _listed_tokens(self) -> dict[str, str]:
        """Return the names of the clients by the tokens that PLANTSTORE_TOKENS lists."""
        tokens = _words(self.source.get("PLANTSTORE_TOKENS") or "")
        for number, token in enumerate(tokens, 1):
            _check_token(token, f"PLANTSTORE_TOKENS: token number {number}")
        if not tokens and not self.source.get("PLANTSTORE_TOKENS_FILE"):
            raise SettingsError(
                "no token is configured: set PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE"
                " (`plantstore token` makes a token)"
            )
        return {token: f"token-{number}" for number, token in enumerate(tokens, 1)}

    def _from_file(self, read: Callable[[str], _T]) -> _T | None:
        """Return what a function reads from the file of tokens, or ``None`` if there is no file."""
        path = str(self.source.get("PLANTSTORE_TOKENS_FILE") or "")
        try:
            return read(path) if path else None
        except (OSError, ValueError) as error:
            raise SettingsError(f"PLANTSTORE_TOKENS_FILE: {describe_fault(error)}") from None

    @property
    def max_body(self) -> int:
        """The largest request body in bytes.

        :raises SettingsError: if it is not a whole number of at least 1.
        """
        value = str(self.source.get("PLANTSTORE_MAX_BODY", DEFAULT_MAX_BODY))
        if re.fullmatch("[1-9][0-9]{0,17}", value) is None:
            raise SettingsError("PLANTSTORE_MAX_BODY must be a whole number of bytes, at least 1")
        return int(value)

    @property
    def operations(self) -> list[str]:
        """The names of the operations that are served.

        :raises SettingsError: if there is no name, or an unknown one.
        """
        names = _words(self.source.get("PLANTSTORE_OPERATIONS", "create"))
        try:
            check_operations(names)
        except ValueError as error:
            raise SettingsError(f"PLANTSTORE_OPERATIONS {error}") from None
        return [*dict.fromkeys(names)]

    def has_metrics(self) -> bool:
        """Return whether metrics are served.

        :raises SettingsError: if it is neither 0 nor 1, or prometheus-client is not installed.
        """
        value = str(self.source.get("PLANTSTORE_METRICS", 0))
        if value not in {"0", "1"}:
            raise SettingsError("PLANTSTORE_METRICS must be 0 or 1")
        if value == "1" and find_spec("prometheus_client") is None:
            raise SettingsError(
                "PLANTSTORE_METRICS: prometheus-client is missing:"
                " pip install 'plantstore[metrics]'"
            )
        return value == "1"

    def log_formatter(self) -> Formatter:
        """Return the formatter of the log.

        :raises SettingsError: if its name is neither text nor json, or python-json-logger is not
            installed.
        """
        name = str(self.source.get("PLANTSTORE_LOG", "text"))
        if name not in FORMATTERS:
            raise SettingsError("PLANTSTORE_LOG must be text or json")
        try:
            return FORMATTERS[name]()
        except ModuleNotFoundError:
            raise SettingsError(
                "PLANTSTORE_LOG: python-json-logger is missing: pip install 'plantstore[gunicorn]'"
            ) from None

    @property
    def store_url(self) -> str:
        """The URL of the store. It may contain a password."""
        return str(self.source.get("PLANTSTORE_STORE", DEFAULT_STORE))

    def open_store(self) -> Store:
        """Open the store.

        :raises SettingsError: if no store has this URL, or its driver is not installed.
        """
        try:
            return open_store(self.store_url)
        except ValueError as error:
            raise SettingsError(f"PLANTSTORE_STORE: {error}") from None


def _words(value: object) -> list[str]:
    """Return the words of a list, or of a text in which commas or white space separate them."""
    text = (
        ",".join(map(str, value))
        if isinstance(value, list | tuple | set | frozenset)
        else str(value)
    )
    return [word for word in re.split(r"[,\s]+", text) if word]


def _is_known(name: str) -> bool:
    return name in NAMES or _KUBERNETES.fullmatch(name) is not None


def _first_of(*checks: VerifyToken) -> VerifyToken:
    """Return a token check that accepts what any of several checks accepts."""

    def verify_token(token: str) -> str | None:
        clients = (check(token) for check in checks)
        return next((client for client in clients if client is not None), None)

    return verify_token


def _check_token(token: str, place: str) -> None:
    try:
        token_digest(token)
    except ValueError as error:
        raise SettingsError(f"{place} is {error}") from None
