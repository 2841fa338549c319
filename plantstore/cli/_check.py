"""The check of the settings and of the store. It changes neither."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .. import __version__
from ..settings import Settings, SettingsError
from ..stores.base import StoreUnavailable
from ..stores.urls import existing, is_new, open_store, public_url
from ..text import one_line


class Finding(NamedTuple):
    """A line of the report: whether something is right, and a text about it."""

    is_right: bool
    text: str


def check(source: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what is right and what is wrong with the settings and the store, and change nothing.

    :param source: the values of the settings by name, such as ``os.environ``.
    """
    settings = Settings(source)
    yield Finding(True, f"plantstore {__version__}")
    optional = [describe for name, describe in _OPTIONAL.items() if name in source]
    for describe in (_names, _tokens, _max_body, *optional, _store):
        try:
            yield Finding(True, describe(settings))
        except (SettingsError, StoreUnavailable) as error:
            yield Finding(False, one_line(error))


def _names(settings: Settings) -> str:
    settings.check_names()
    return "Settings: all names are known"


def _tokens(settings: Settings) -> str:
    return f"Tokens: {settings.token_sources}"


def _max_body(settings: Settings) -> str:
    return f"Largest request body: {settings.max_body} bytes"


def _operations(settings: Settings) -> str:
    return f"Operations: {', '.join(settings.operations)}"


def _metrics(settings: Settings) -> str:
    return f"Metrics: {'on' if settings.has_metrics() else 'off'}"


def _log(settings: Settings) -> str:
    settings.log_formatter()
    return f"Log: {settings.source['PLANTSTORE_LOG']}"


def _store(settings: Settings) -> str:
    settings.open_store().close()
    url, name = settings.store_url, public_url(settings.store_url)
    if is_new(url):
        return f"Store: {name} can be used (the first plant creates the file)"
    try:
        # Opened with its own URL, the store could change the journal mode of an SQLite file.
        with open_store(existing(url)) as store:
            store.ping()
    except StoreUnavailable as error:
        raise StoreUnavailable(f"Store: {name} cannot be used now: {error}") from error
    return f"Store: {name} can be used"


# The report has a line about each of these settings only if it is set.
_OPTIONAL = {
    "PLANTSTORE_OPERATIONS": _operations,
    "PLANTSTORE_METRICS": _metrics,
    "PLANTSTORE_LOG": _log,
}
