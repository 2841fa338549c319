"""The settings ``PLANTSTORE_*``: the same names in the environment and in ``app.config``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from .auth import StaticTokens, token_digest
from .body import DEFAULT_MAX_BODY
from .stores import Store, open_store

#: The default URL of the store.
DEFAULT_STORE = "memory://"


#: The names of the settings.
NAMES = ("PLANTSTORE_TOKENS", "PLANTSTORE_TOKENS_FILE", "PLANTSTORE_STORE", "PLANTSTORE_MAX_BODY")
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
    def verify_token(self) -> StaticTokens:
        """The token check: accepts the tokens of the two token settings.

        :raises SettingsError: if no token is configured, if a token is malformed, or if the
            file of tokens cannot be read. The service never starts without authentication.
        """
        tokens = self._tokens()
        return StaticTokens(tokens["PLANTSTORE_TOKENS"] | tokens["PLANTSTORE_TOKENS_FILE"])

    @property
    def token_sources(self) -> str:
        """How many tokens each setting has, in words.

        :raises SettingsError: as for :attr:`verify_token`.
        """
        numbers = {name: len(tokens) for name, tokens in self._tokens().items() if tokens}
        return ", ".join(f"{number} from {name}" for name, number in numbers.items())

    def _tokens(self) -> dict[str, dict[str, str]]:
        """Return the names of the clients by their tokens, for each setting."""
        listed = _listed_tokens(self.source.get("PLANTSTORE_TOKENS") or "")
        in_file = _tokens_in_file(str(self.source.get("PLANTSTORE_TOKENS_FILE") or ""))
        if not listed and not in_file:
            raise SettingsError(
                "no token is configured: set PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE"
                " (`plantstore token` makes a token)"
            )
        return {"PLANTSTORE_TOKENS": listed, "PLANTSTORE_TOKENS_FILE": in_file}

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


def _is_known(name: str) -> bool:
    return name in NAMES or _KUBERNETES.fullmatch(name) is not None


def _listed_tokens(value: object) -> dict[str, str]:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple | set) else str(value)
    tokens = [token for token in re.split(r"[,\s]+", text) if token]
    for number, token in enumerate(tokens, 1):
        _check_token(token, f"PLANTSTORE_TOKENS: token number {number}")
    return {token: f"token-{number}" for number, token in enumerate(tokens, 1)}


def _tokens_in_file(path: str) -> dict[str, str]:
    tokens = {}
    for number, line in enumerate(_lines(path) if path else [], 1):
        token, *client = line.partition("#")[0].split(maxsplit=1) or [""]
        if token:
            _check_token(token, f"PLANTSTORE_TOKENS_FILE: line {number}")
            tokens[token] = client[0].strip() if client else f"line-{number}"
    return tokens


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        # The message omits the path, because it may be a token that is in the wrong setting.
        raise SettingsError(f"PLANTSTORE_TOKENS_FILE: {error.strerror}") from None
    except ValueError:
        raise SettingsError("PLANTSTORE_TOKENS_FILE: not UTF-8 text") from None


def _check_token(token: str, place: str) -> None:
    try:
        token_digest(token)
    except ValueError as error:
        raise SettingsError(f"{place} is {error}") from None
