"""The options in the URL of a database."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

#: What converts an option, or raises ValueError if it is invalid. Or the values that it can have.
Converter = Callable[[str], Any] | tuple[str, ...]


def between(lowest: float, highest: float) -> Callable[[str], Any]:
    """Return a function that converts an option to a number of the type of the limits."""

    def convert_number(value: str) -> float:
        number = type(lowest)(value)
        if not lowest <= number <= highest:
            raise ValueError
        return number

    return convert_number


def convert(
    options: Mapping[str, str | Sequence[str]], converters: Mapping[str, Converter]
) -> dict[str, Any]:
    """Return the options of a URL, converted to their types.

    :raises ValueError: if an option is unknown, invalid, or occurs twice. The message names it.
    """
    converted = dict[str, Any]()
    for name, value in sorted(options.items()):
        converter = converters.get(name)
        if converter is None:
            raise ValueError(f"the URL has an unknown option: {shown(name, options)}")
        if not isinstance(value, str):
            raise ValueError(f"the URL has the option {name} more than once")
        if isinstance(converter, tuple) and value not in converter:
            raise ValueError(f"the option {name} of the URL must be {' or '.join(converter)}")
        try:
            converted[name] = value if isinstance(converter, tuple) else converter(value)
        except (OSError, ValueError):
            raise ValueError(f"the option {name} of the URL has an invalid value") from None
    return converted


def shown(name: str, options: Iterable[str]) -> str:
    """Return the name of an option, unless it may be a part of a password with a raw &."""
    if any("passw" in option for option in options):
        return "in a password write & as %26"
    return repr(name)
