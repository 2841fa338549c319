"""The options in the URL of a database."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


def between(lowest: float, highest: float) -> Callable[[str], Any]:
    """Return a function that converts an option to a number of the type of the limits."""

    def convert_number(value: str) -> float:
        number = type(lowest)(value)
        if not lowest <= number <= highest:
            raise ValueError
        return number

    return convert_number


class WrongChoice(ValueError):
    """A value of an option is none of those that it can have. The message has them."""


def one_of(*values: str) -> Callable[[str], str]:
    """Return a function that refuses all other values of an option, by :exc:`WrongChoice`."""

    def check_choice(value: str) -> str:
        if value not in values:
            raise WrongChoice(" or ".join(values))
        return value

    return check_choice


def convert(
    options: Mapping[str, str | Sequence[str]], types: Mapping[str, Callable[[str], Any]]
) -> dict[str, Any]:
    """Return the options of a URL, converted to their types.

    :param types: for each option, a function that raises ValueError for an invalid value.
    :raises ValueError: if an option is unknown, invalid, or occurs twice. The message names it.
    """
    converted = dict[str, Any]()
    for name, value in sorted(options.items()):
        if name not in types:
            raise ValueError(f"the URL has an unknown option: {shown(name, options)}")
        if not isinstance(value, str):
            raise ValueError(f"the URL has the option {name} more than once")
        try:
            converted[name] = types[name](value)
        except WrongChoice as choices:
            raise ValueError(f"the option {name} of the URL must be {choices}") from None
        except (OSError, ValueError):
            raise ValueError(f"the option {name} of the URL has an invalid value") from None
    return converted


def shown(name: str, options: Iterable[str]) -> str:
    """Return the name of an option, unless it may be a part of a password with a raw &."""
    if any("passw" in option for option in options):
        return "in a password write & as %26"
    return repr(name)
