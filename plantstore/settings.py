"""The settings ``PLANTSTORE_*``: the same names in the environment and in ``app.config``."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.util import find_spec
from logging import Formatter
from typing import Any, Generic, TypeVar

from .auth import StaticTokens, VerifyToken, any_of
from .bearer import token_digest
from .blueprint import check_operations
from .body import DEFAULT_MAX_BODY
from .observability.log_format import FORMATTERS
from .stores.base import Store
from .stores.urls import DEFAULT_STORE, open_store
from .text import printable
from .tokens.file import TokenFile, describe_fault, name_expired, read_file

_T = TypeVar("_T")

# The variables that Kubernetes sets for a service whose name is or begins with plantstore.
_KUBERNETES = re.compile(
    r"PLANTSTORE_([A-Z0-9_]+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


class SettingsError(ValueError):
    """A setting is missing or wrong. The message names the setting and shows no secret."""


@dataclass(frozen=True)
class Setting(Generic[_T]):
    """A setting. ``plantstore --help`` and ``plantstore check`` follow from its entry.

    :param name: its name in the environment.
    :param meaning: what it means, for people.
    :param default: its default, as text; ``None`` if there is none.
    :param parse: returns the value for a text. It raises ValueError with what follows the name in
        a message, or ModuleNotFoundError with what follows the name and a colon.
    :param report: returns the line about the value in the report of ``plantstore check``. It is
        ``None`` for the tokens and the store, about which the report says more.
    """

    name: str
    meaning: str
    default: str | None
    parse: Callable[[Any], _T]
    report: Callable[[_T], str] | None


def _words(value: object) -> list[str]:
    """Return the words of a list, or of a text in which commas or white space separate them."""
    text = (
        ",".join(map(str, value))
        if isinstance(value, list | tuple | set | frozenset)
        else str(value)
    )
    return [word for word in re.split(r"[,\s]+", text) if word]


def _tokens(value: object) -> list[str]:
    tokens = _words(value or "")
    for number, token in enumerate(tokens, 1):
        try:
            token_digest(token)
        except ValueError as error:
            raise SettingsError(f"PLANTSTORE_TOKENS: token number {number} is {error}") from None
    return tokens


def _bytes(value: object) -> int:
    if re.fullmatch("[1-9][0-9]{0,17}", str(value)) is None:
        raise ValueError("must be a whole number of bytes, at least 1")
    return int(str(value))


def _operations(value: object) -> list[str]:
    names = _words(value)
    check_operations(names)
    return [*dict.fromkeys(names)]


def _metrics(value: object) -> bool:
    if str(value) not in {"0", "1"}:
        raise ValueError("must be 0 or 1")
    is_on = str(value) == "1"
    if is_on and find_spec("prometheus_client") is None:
        raise ModuleNotFoundError("prometheus-client is missing: pip install 'plantstore[metrics]'")
    return is_on


def _log(value: object) -> str:
    if str(value) not in FORMATTERS:
        raise ValueError("must be text or json")
    try:
        FORMATTERS[str(value)]()
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "python-json-logger is missing: pip install 'plantstore[gunicorn]'"
        ) from None
    return str(value)


TOKENS = Setting(
    "PLANTSTORE_TOKENS",
    "accepted tokens, separated by commas or white space; each is plain text or `sha256:<64 hex>`",
    None,
    _tokens,
    None,
)
TOKENS_FILE = Setting(
    "PLANTSTORE_TOKENS_FILE",
    "a file of tokens, one per line: token or digest, then optionally the client's name,"
    " `expires=2027-01-31` and `operations=create,read`",
    None,
    lambda path: str(path or ""),
    None,
)
STORE = Setting(
    "PLANTSTORE_STORE",
    "the URL of the store, such as `sqlite:///plants.db`",
    DEFAULT_STORE,
    str,
    None,
)
MAX_BODY = Setting(
    "PLANTSTORE_MAX_BODY",
    "the largest request body, in bytes",
    str(DEFAULT_MAX_BODY),
    _bytes,
    "Largest request body: {} bytes".format,
)
SERVED_OPERATIONS = Setting(
    "PLANTSTORE_OPERATIONS",
    "the operations that are served, separated by commas or white space: `create`, `read`, `list`,"
    " `delete`",
    "create",
    _operations,
    lambda names: f"Operations: {', '.join(names)}",
)
METRICS = Setting(
    "PLANTSTORE_METRICS",
    "`1`: metrics for Prometheus are served",
    "0",
    _metrics,
    lambda is_on: f"Metrics: {'on' if is_on else 'off'}",
)
LOG = Setting(
    "PLANTSTORE_LOG", "the format of the log: `text` or `json`", "text", _log, "Log: {}".format
)

#: The settings, in the order of their entries.
SETTINGS: tuple[Setting[Any], ...] = tuple(
    entry for entry in vars().values() if isinstance(entry, Setting)
)
_NAMES = [setting.name for setting in SETTINGS]


@dataclass(frozen=True)
class Settings:
    """The settings of the standalone service. A setting is read and checked when it is used.

    :param source: the values by name, such as ``os.environ``. They are not in the ``repr``.
    """

    source: Mapping[str, Any] = field(repr=False)

    def __getitem__(self, setting: Setting[_T]) -> _T:
        """Return the value of a setting.

        :raises SettingsError: if it is wrong.
        """
        default = "" if setting.default is None else setting.default
        try:
            return setting.parse(self.source.get(setting.name, default))
        except SettingsError:
            raise
        except ModuleNotFoundError as error:
            raise SettingsError(f"{setting.name}: {error}") from None
        except ValueError as error:
            raise SettingsError(f"{setting.name} {error}") from None

    def check_names(self) -> None:
        """Check that every name that begins with ``PLANTSTORE_`` is that of a setting.

        The variables that Kubernetes sets are allowed.

        :raises SettingsError: if one is not. The message suggests the nearest name.
        """
        for name in self.source:
            if name.startswith("PLANTSTORE_") and not _is_known(name):
                (nearest, *_) = get_close_matches(name.upper(), _NAMES, 1, 0)
                raise SettingsError(f"{printable(name)} is not a setting. Did you mean {nearest}?")

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
        return any_of(file, StaticTokens(listed)) if listed else file

    @property
    def token_sources(self) -> str:
        """How many tokens each setting has, and which have expired, in words.

        :raises SettingsError: as for :attr:`verify_token`.
        """
        listed, in_file = self._listed_tokens(), self._from_file(read_file)
        sources = [f"{len(listed)} from {TOKENS.name}"] if listed else []
        if in_file is not None:
            sources.append(f"{len(in_file)} from {TOKENS_FILE.name}{name_expired(in_file)}")
        return ", ".join(sources)

    def _listed_tokens(self) -> dict[str, str]:
        """Return the names of the clients by the tokens that PLANTSTORE_TOKENS lists."""
        tokens = self[TOKENS]
        if not tokens and not self[TOKENS_FILE]:
            raise SettingsError(
                f"no token is configured: set {TOKENS.name} or {TOKENS_FILE.name}"
                " (`plantstore token` makes a token)"
            )
        return {token: f"token-{number}" for number, token in enumerate(tokens, 1)}

    def _from_file(self, read: Callable[[str], _T]) -> _T | None:
        """Return what a function reads from the file of tokens, or ``None`` if there is no file."""
        path = self[TOKENS_FILE]
        try:
            return read(path) if path else None
        except (OSError, ValueError) as error:
            raise SettingsError(f"{TOKENS_FILE.name}: {describe_fault(error)}") from None

    def log_formatter(self) -> Formatter:
        """Return the formatter of the log.

        :raises SettingsError: if PLANTSTORE_LOG is wrong.
        """
        return FORMATTERS[self[LOG]]()

    @property
    def store_kind(self) -> str:
        """The kind of the store, such as ``sqlite`` or ``postgresql``."""
        return re.split("[+:]", self[STORE])[0]

    def open_store(self) -> Store:
        """Open the store.

        :raises SettingsError: if no store has this URL, or its driver is not installed.
        """
        try:
            return open_store(self[STORE])
        except ValueError as error:
            raise SettingsError(f"{STORE.name}: {error}") from None


def _is_known(name: str) -> bool:
    return name in _NAMES or _KUBERNETES.fullmatch(name) is not None
