"""The settings ``PLANTSTORE_*``: the same names in the environment and in ``app.config``."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from typing import Any, Generic, NamedTuple, TypeVar

from .auth import VerifyToken
from .blueprint import check_operations
from .body import DEFAULT_MAX_BODY
from .log import check_format
from .stores.base import Store
from .stores.urls import DEFAULT_STORE, open_store, public_url
from .text import printable, words
from .tokens.file import describe_fault
from .tokens.sources import count_tokens, make_check, read_listed

_T = TypeVar("_T")

# The variables that Kubernetes sets for a service whose name is or begins with plantstore.
_KUBERNETES = re.compile(
    r"PLANTSTORE_([A-Z0-9_]+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


class SettingsError(ValueError):
    """A setting is missing or wrong. The message names the setting and shows no secret."""


class Setting(NamedTuple, Generic[_T]):
    """A setting. Its parser takes a text or a value of ``app.config``, or raises ValueError."""

    name: str
    meaning: str
    default: str
    parse: Callable[[Any], _T]


def _whole_number(value: object, of: str, least: int) -> int:
    if re.fullmatch("[0-9]{1,18}", str(value)) is None or int(str(value)) < least:
        raise ValueError(f"must be a whole number of {of}, at least {least}")
    return int(str(value))


def _operations(value: object) -> list[str]:
    names = words(value)
    check_operations(names)
    return [*dict.fromkeys(names)]


def _metrics(value: object) -> bool:
    is_on = {"0": False, "1": True}.get(str(value), value)
    if not isinstance(is_on, bool):
        raise ValueError("must be 0 or 1")
    if is_on and find_spec("prometheus_client") is None:
        raise ValueError("prometheus-client is missing: pip install 'plantstore[metrics]'")
    return is_on


TOKENS = Setting(
    "PLANTSTORE_TOKENS",
    "accepted tokens, separated by commas or white space; each is plain text or `sha256:<64 hex>`",
    "",
    read_listed,
)
TOKENS_FILE = Setting(
    "PLANTSTORE_TOKENS_FILE",
    "a file of tokens, one per line: token or digest, then optionally the client's name,"
    " `expires=2027-01-31` and `operations=create,read`",
    "",
    lambda path: str(path or ""),
)
STORE = Setting(
    "PLANTSTORE_STORE", "the URL of the store, such as `sqlite:///plants.db`", DEFAULT_STORE, str
)
MAX_BODY = Setting(
    "PLANTSTORE_MAX_BODY",
    "the largest request body, in bytes",
    str(DEFAULT_MAX_BODY),
    partial(_whole_number, of="bytes", least=1),
)
SERVED_OPERATIONS = Setting(
    "PLANTSTORE_OPERATIONS",
    "the served operations, separated by commas or spaces: `create`, `read`, `list`, `delete`",
    "create",
    _operations,
)
PROXIES = Setting(
    "PLANTSTORE_PROXIES",
    "the number of proxies in front of the service",
    "0",
    partial(_whole_number, of="proxies", least=0),
)
METRICS = Setting("PLANTSTORE_METRICS", "`1`: metrics for Prometheus are served", "0", _metrics)
LOG = Setting("PLANTSTORE_LOG", "the format of the log: `text` or `json`", "text", check_format)

#: The settings, in the order of their entries.
SETTINGS: tuple[Setting[Any], ...] = tuple(
    entry for entry in vars().values() if isinstance(entry, Setting)
)


class Settings:
    """The settings of the standalone service, read once. A wrong one is an error when it is used.

    :param source: the values by name, such as ``os.environ``.
    """

    def __init__(self, source: Mapping[str, Any]) -> None:
        self._source = {name: source[name] for name in source if name.startswith("PLANTSTORE_")}

    def __getitem__(self, setting: Setting[_T]) -> _T:
        """Return the value of a setting, or raise :exc:`SettingsError` if it is wrong."""
        try:
            return setting.parse(self._source.get(setting.name, setting.default))
        except ValueError as error:
            raise SettingsError(f"{setting.name}: {error}") from None

    def _describe_names(self) -> str:
        self.check_names()
        return "Settings: all names are known"

    def _describe_tokens(self) -> str:
        return f"Tokens: {self.describe_tokens()}"

    def _describe_value(self, setting: Setting[Any]) -> str:
        self[setting]  # This raises SettingsError if the value is wrong.
        value = self._source.get(setting.name, setting.default)
        return f"{setting.name}: {', '.join(words(value))}"

    def _describe_store(self) -> str:
        self.open_store().close()
        return f"Store: {public_url(self[STORE])}"

    def check_names(self) -> None:
        """Raise :exc:`SettingsError` if a name is not that of a setting, nor set by Kubernetes."""
        known = [setting.name for setting in SETTINGS]
        for name in self._source:
            if name not in known and _KUBERNETES.fullmatch(name) is None:
                (nearest, *_) = get_close_matches(name.upper(), known, 1, 0)
                raise SettingsError(f"{printable(name)} is not a setting. Did you mean {nearest}?")

    def findings(self) -> Iterator[str | SettingsError]:
        """Yield a line about everything that must be right before the service starts, or its error.

        It opens no connection and changes nothing.
        """
        others = [entry for entry in SETTINGS if entry not in {TOKENS, TOKENS_FILE, STORE}]
        values = [partial(self._describe_value, entry) for entry in others]
        checks: list[Callable[[], str]] = [self._describe_names, self._describe_tokens, *values]
        for describe in (*checks, self._describe_store):
            try:
                yield describe()
            except SettingsError as error:
                yield error

    def check(self) -> None:
        """Raise :exc:`SettingsError` for the first setting that is missing or wrong."""
        for finding in self.findings():
            if isinstance(finding, SettingsError):
                raise finding

    def public(self, *, without: Collection[Setting[Any]] = ()) -> dict[str, Any]:
        """Return the values by name, without some settings, and without secrets."""
        values = {entry.name: self[entry] for entry in SETTINGS if entry not in {TOKENS, *without}}
        if STORE.name in values:
            values[STORE.name] = public_url(self[STORE])
        return values

    def verify_token(self) -> VerifyToken:
        """Return the check that accepts the tokens of the settings. A changed file is read again.

        :raises SettingsError: if there is no token, or the file of tokens cannot be used.
        """
        return self._use_tokens(make_check)

    def describe_tokens(self) -> str:
        """Return how many tokens each setting has, and which have expired, in words."""
        return self._use_tokens(count_tokens)

    def _use_tokens(self, use: Callable[[list[str], str], _T]) -> _T:
        listed, path = self[TOKENS], self[TOKENS_FILE]
        if not listed and not path:
            names = f"{TOKENS.name} or {TOKENS_FILE.name} (`plantstore token` makes a token)"
            raise SettingsError(f"no token is configured: set {names}")
        try:
            return use(listed, path)
        except (OSError, ValueError) as error:
            raise SettingsError(f"{TOKENS_FILE.name}: {describe_fault(error)}") from None

    def open_store(self) -> Store:
        """Open the store, or raise :exc:`SettingsError` if its URL or its driver is wrong."""
        try:
            return open_store(self[STORE])
        except ValueError as error:
            raise SettingsError(f"{STORE.name}: {error}") from None
