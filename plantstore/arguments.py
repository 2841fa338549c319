"""The exception for an argument of a wrong type."""


def type_error(argument: str, expected: str, given: object) -> TypeError:
    """Return a TypeError whose message says what was expected.

    :param argument: the name of the argument.
    :param expected: what it must be, in words.
    :param given: the value. The message names only its type, since a value may be a secret.
    """
    kind = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
    return TypeError(f"{argument} must be {expected}, not {kind}")
