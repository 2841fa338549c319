"""The check of the settings and of the store. It changes neither."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from .. import __version__
from ..settings import SETTINGS, STORE, TOKENS, TOKENS_FILE, Setting, Settings, SettingsError
from ..stores.base import StoreUnavailable
from ..stores.urls import existing, open_store, public_url
from ..text import one_line, words

# Returns a line of the report, or raises an exception whose text is the line.
_Describe = Callable[[Settings], str]
# These have no line of their own: the lines about the tokens and the store describe them.
_DESCRIBED = {TOKENS, TOKENS_FILE, STORE}


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
    values: list[_Describe] = [
        partial(_value, source, entry) for entry in SETTINGS if entry not in _DESCRIBED
    ]
    for describe in (_names, _tokens, *values, _store):
        try:
            yield Finding(True, describe(settings))
        except (SettingsError, StoreUnavailable) as error:
            yield Finding(False, one_line(error))


def _names(settings: Settings) -> str:
    settings.check_names()
    return "Settings: all names are known"


def _tokens(settings: Settings) -> str:
    return f"Tokens: {settings.describe_tokens()}"


def _value(source: Mapping[str, Any], setting: Setting[Any], settings: Settings) -> str:
    settings[setting]  # This raises SettingsError if the value is wrong.
    return f"{setting.name}: {', '.join(words(source.get(setting.name, setting.default)))}"


def _store(settings: Settings) -> str:
    settings.open_store().close()
    url, name = settings[STORE], public_url(settings[STORE])
    if url.startswith("sqlite:") and _is_new(url):
        return f"Store: {name} can be used (the first plant creates the file)"
    try:
        # Opened with its own URL, the store could change the journal mode of an SQLite file.
        with open_store(existing(url)) as store:
            store.ping()
    except StoreUnavailable as error:
        raise StoreUnavailable(f"Store: {name} cannot be used now: {error}") from error
    return f"Store: {name} can be used"


def _is_new(url: str) -> bool:
    from ..sql import is_new

    return is_new(url)
