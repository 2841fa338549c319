"""The settings ``PLANTSTORE_*``: the same names in the environment and in ``app.config``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .auth import StaticTokens, token_digest
from .body import DEFAULT_MAX_BODY
from .stores import Store, open_store

#: The default URL of the store.
DEFAULT_STORE = "memory://"


class SettingsError(ValueError):
    """A setting is missing or wrong. The message names the setting and shows no secret."""


@dataclass(frozen=True)
class Settings:
    """The settings of the standalone service. A setting is read and checked when it is used.

    :param source: the values by name, such as ``os.environ``. They are not in the ``repr``.
    """

    source: Mapping[str, Any] = field(repr=False)

    @property
    def verify_token(self) -> StaticTokens:
        """The token check: accepts the tokens of the two token settings.

        :raises SettingsError: if no token is configured, if a token is malformed, or if the
            file of tokens cannot be read. The service never starts without authentication.
        """
        listed = _listed_tokens(self.source.get("PLANTSTORE_TOKENS") or "")
        in_file = _tokens_in_file(str(self.source.get("PLANTSTORE_TOKENS_FILE") or ""))
        if not listed and not in_file:
            raise SettingsError(
                "no token is configured: set PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE"
                " (`plantstore token` makes a token)"
            )
        return StaticTokens(listed | in_file)

    @property
    def max_body(self) -> int:
        """The largest request body in bytes.

        :raises SettingsError: if it is not a whole number of at least 1.
        """
        value = str(self.source.get("PLANTSTORE_MAX_BODY", DEFAULT_MAX_BODY))
        if re.fullmatch("[1-9][0-9]{0,17}", value) is None:
            raise SettingsError("PLANTSTORE_MAX_BODY must be a whole number of bytes, at least 1")
        return int(value)

    def open_store(self) -> Store:
        """Open the store.

        :raises SettingsError: if no store has this URL, or its driver is not installed.
        """
        try:
            return open_store(str(self.source.get("PLANTSTORE_STORE", DEFAULT_STORE)))
        except ValueError as error:
            raise SettingsError(f"PLANTSTORE_STORE: {error}") from None


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
