"""``PLANTSTORE_*``, by the same names from the environment and from ``create_app``'s config."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .auth import StaticTokens, token_digest
from .body import DEFAULT_MAX_BODY
from .stores import Store, open_store


class SettingsError(ValueError):
    """A setting is missing or bad; the message names it, and shows no secret."""


@dataclass(frozen=True)
class Settings:
    """What an operator can set; its ``repr`` shows no secret.

    ``verify_token`` accepts the configured tokens, ``store_url`` names the store, and
    ``max_body`` is the largest request body in bytes.
    """

    verify_token: StaticTokens
    store_url: str = field(default="memory://", repr=False)
    max_body: int = DEFAULT_MAX_BODY

    @classmethod
    def read(cls, source: Mapping[str, Any]) -> "Settings":
        """Read the settings from a mapping such as ``os.environ``.

        Raises :exc:`SettingsError` for a bad setting, and when no token is configured:
        the service never starts open.
        """
        return cls(
            verify_token=_verify_token(source),
            store_url=str(source.get("PLANTSTORE_STORE", cls.store_url)),
            max_body=_max_body(str(source.get("PLANTSTORE_MAX_BODY", cls.max_body))),
        )

    def open_store(self) -> Store:
        """Open the store that was set; raises :exc:`SettingsError` when there is no such store."""
        try:
            return open_store(self.store_url)
        except ValueError as error:
            raise SettingsError(f"PLANTSTORE_STORE: {error}") from None


def _max_body(value: str) -> int:
    if re.fullmatch("[1-9][0-9]{0,17}", value) is None:
        raise SettingsError("PLANTSTORE_MAX_BODY must be a whole number of bytes, at least 1")
    return int(value)


def _verify_token(source: Mapping[str, Any]) -> StaticTokens:
    listed = _in_variable(source.get("PLANTSTORE_TOKENS") or "")
    in_file = _in_file(str(source.get("PLANTSTORE_TOKENS_FILE") or ""))
    if not listed and not in_file:
        raise SettingsError(
            "no token is configured: set PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE"
            " (`plantstore token` makes one)"
        )
    return StaticTokens(listed | in_file)


def _in_variable(value: object) -> dict[str, str]:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple | set) else str(value)
    tokens = [token for token in re.split(r"[,\s]+", text) if token]
    for number, token in enumerate(tokens, 1):
        _check_token(token, f"PLANTSTORE_TOKENS: number {number}")
    return {token: f"token-{number}" for number, token in enumerate(tokens, 1)}


def _in_file(path: str) -> dict[str, str]:
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
        # The path stays out of it: it may be a token that went to the wrong setting.
        raise SettingsError(f"PLANTSTORE_TOKENS_FILE: {error.strerror}") from None
    except ValueError:
        raise SettingsError("PLANTSTORE_TOKENS_FILE: not UTF-8 text") from None


def _check_token(token: str, where: str) -> None:
    try:
        token_digest(token)
    except ValueError as error:
        raise SettingsError(f"{where} is {error}") from None
