"""The settings ``PLANTSTORE_*``: the same names in the environment and in ``app.config``."""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from typing import Any, Generic, NamedTuple, TypeVar

from .auth import VerifyToken
from .blueprint import OPERATIONS, check_operations, check_store
from .body import DEFAULT_MAX_BODY
from .log import make_formatter
from .observability import METRICS_FOLDER
from .stores.base import Store
from .stores.urls import DEFAULT_STORE, open_store, public_url
from .text import at_least, printable, switch, words
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


def _metrics(value: object) -> bool:
    if switch(value) and find_spec("prometheus_client") is None:
        raise ValueError("prometheus-client is missing: pip install 'plantstore[metrics]'")
    return switch(value)


def _format(value: object) -> str:
    make_formatter(value)  # This raises ValueError if the log cannot have this format.
    return str(value)


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
    partial(at_least, 1),
)
# Among the operations that are known. What a token allows is in the file of tokens.
SERVED_OPERATIONS = Setting(
    "PLANTSTORE_OPERATIONS",
    f"the served operations, with commas or spaces: {', '.join(map('`{}`'.format, OPERATIONS))}",
    "create",
    lambda value: check_operations(words(value)),
)
PROXIES = Setting(
    "PLANTSTORE_PROXIES", "the number of proxies in front of the service", "0", partial(at_least, 0)
)
METRICS = Setting("PLANTSTORE_METRICS", "`1`: metrics for Prometheus are served", "0", _metrics)
LOG = Setting("PLANTSTORE_LOG", "the format of the log: `text` or `json`", "text", _format)

#: The settings, in the order of their entries.
SETTINGS: tuple[Setting[Any], ...] = tuple(
    entry for entry in vars().values() if isinstance(entry, Setting)
)


class Settings:
    """The settings of the standalone service, read once. A wrong one is an error when it is used.

    :param source: the values by name, such as ``os.environ``.
    """

    def __init__(self, source: Mapping[str, Any]) -> None:
        given = {name: source[name] for name in source if name.startswith("PLANTSTORE_")}
        self._source = {entry.name: entry.default for entry in SETTINGS} | given

    def __getitem__(self, setting: Setting[_T]) -> _T:
        """Return the value of a setting, or raise :exc:`SettingsError` if it is wrong."""
        try:
            return setting.parse(self._source[setting.name])
        except ValueError as error:
            raise SettingsError(f"{setting.name}: {error}") from None

    def _describe(self, setting: Setting[Any]) -> str:
        self[setting]  # This raises SettingsError if the value is wrong.
        return ", ".join(words(self._source[setting.name]))

    def _describe_metrics(self, workers: int) -> str:
        folder = os.environ.get(METRICS_FOLDER)
        is_usable = os.access(f"{folder}/.", os.W_OK) if folder else workers < 2 and folder is None
        if self[METRICS] and not is_usable:
            share = f"set {METRICS_FOLDER} to an empty folder that this user can write"
            raise SettingsError(f"{METRICS.name}: {share}. In it, the workers share the metrics")
        return self._describe(METRICS)

    def _describe_store(self, workers: int) -> str:
        with self.open_store() as store:
            if store.one_process and workers > 1:
                only = f"the store of {STORE.name} can have only one worker"
                raise SettingsError(f"{only}, not {workers}")
            return public_url(self[STORE])

    def check_names(self) -> str:
        """Raise :exc:`SettingsError` if a name is not that of a setting, nor set by Kubernetes."""
        known = [setting.name for setting in SETTINGS]
        for name in self._source:
            if name not in known and _KUBERNETES.fullmatch(name) is None:
                (nearest, *_) = get_close_matches(name.upper(), known, 1, 0)
                raise SettingsError(f"{printable(name)} is not a setting. Did you mean {nearest}?")
        return "all names are known"

    def findings(self, workers: int | None = None) -> Iterator[str | SettingsError]:
        """Yield a line or an error of each check before the start. No connection is opened.

        :param workers: how many processes will serve. By default, WEB_CONCURRENCY says it.
        """
        if workers is None:
            number = os.environ.get("WEB_CONCURRENCY", "")
            workers = int(number) if number.isdecimal() else 1  # gunicorn refuses another text.
        checks = {"Settings": self.check_names, "Tokens": self.describe_tokens}
        others = [entry for entry in SETTINGS if entry not in {TOKENS, TOKENS_FILE, STORE}]
        checks |= {entry.name: partial(self._describe, entry) for entry in others}
        checks[METRICS.name] = partial(self._describe_metrics, workers)
        checks["Store"] = partial(self._describe_store, workers)
        for label, check in checks.items():
            try:
                yield f"{label}: {check()}"
            except SettingsError as error:
                yield error

    def check(self, workers: int) -> None:
        """Raise :exc:`SettingsError` for the first setting that is wrong for so many workers."""
        for finding in self.findings(workers):
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
        """Open the store; raise :exc:`SettingsError` if its URL is wrong or it lacks a method."""
        served = words(self._source[SERVED_OPERATIONS.name])  # That setting has its own check.
        try:
            return check_store(open_store(self[STORE]), served)
        except ValueError as error:
            raise SettingsError(f"{STORE.name}: {error}") from None
