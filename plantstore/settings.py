"""``PLANTSTORE_*``, the same names in the environment and in ``app.config``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .auth import StaticTokens, token_digest
from .stores import Store, open_store

DEFAULT_MAX_BODY = 1048576


class SettingsError(ValueError):
    """A setting is missing or bad; the message names it, and shows no secret."""


@dataclass(frozen=True)
class Settings:
    """What an operator can set; its ``repr`` shows no secret.

    ``verify_token`` accepts the configured tokens, ``store`` is the store's URL,
    ``max_body`` the largest request body in bytes.
    """

    verify_token: StaticTokens
    store: str = field(default="memory://", repr=False)
    max_body: int = DEFAULT_MAX_BODY

    @classmethod
    def read(cls, source: Mapping[str, Any]) -> "Settings":
        """Read the settings from a mapping such as ``os.environ``.

        Raises :exc:`SettingsError` for a bad setting, and when no token is configured:
        the service never starts open.
        """
        return cls(
            verify_token=_verify_token(source),
            store=str(source.get("PLANTSTORE_STORE", cls.store)),
            max_body=_max_body(str(source.get("PLANTSTORE_MAX_BODY", cls.max_body))),
        )

    def open_store(self) -> Store:
        """Open the store that was set; raises :exc:`SettingsError` when there is no such store."""
        try:
            return open_store(self.store)
        except ValueError as error:
            raise SettingsError(f"PLANTSTORE_STORE: {error}") from None


def _max_body(value: str) -> int:
    if re.fullmatch("[1-9][0-9]{0,17}", value) is None:
        raise SettingsError("PLANTSTORE_MAX_BODY: not a number of bytes, 1 or more")
    return int(value)


def _verify_token(source: Mapping[str, Any]) -> StaticTokens:
    listed = _listed(str(source.get("PLANTSTORE_TOKENS") or ""))
    in_file = _in_file(str(source.get("PLANTSTORE_TOKENS_FILE") or ""))
    if not listed and not in_file:
        raise SettingsError(
            "no token is configured: set PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE"
            " (`plantstore token` makes one)"
        )
    return StaticTokens(listed | in_file)


def _listed(value: str) -> dict[str, str]:
    tokens = [token for token in re.split(r"[,\s]+", value) if token]
    for number, token in enumerate(tokens, 1):
        _check(token, f"PLANTSTORE_TOKENS: number {number}")
    return {token: f"token-{number}" for number, token in enumerate(tokens, 1)}


def _in_file(path: str) -> dict[str, str]:
    tokens = {}
    for number, line in enumerate(_lines(path) if path else [], 1):
        token, *client = line.partition("#")[0].split(maxsplit=1) or [""]
        if token:
            _check(token, f"PLANTSTORE_TOKENS_FILE: line {number}")
            tokens[token] = client[0].strip() if client else f"line-{number}"
    return tokens


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        # The path stays out of it: it may be a token that went to the wrong setting.
        raise SettingsError(f"PLANTSTORE_TOKENS_FILE: {error.strerror}") from None
    except ValueError:
        raise SettingsError("PLANTSTORE_TOKENS_FILE: not UTF-8 text") from None


def _check(token: str, where: str) -> None:
    try:
        token_digest(token)
    except ValueError as error:
        raise SettingsError(f"{where} is {error}") from None
