"""Text for messages: one line, printable, of limited length."""

import pytest

from plantstore.text import excerpt, one_line, printable, type_error


@pytest.mark.parametrize(
    ("given", "kind"), [("s3cret", "str"), (None, "NoneType"), (dict, "the class dict")]
)
def test_type_error_names_the_type_and_not_the_value(given: object, kind: str) -> None:
    """The message names the type of a value, or a class, and never shows the value."""
    assert str(type_error("store", "a Store", given)) == f"store must be a Store, not {kind}"


def test_printable_escapes_control_characters() -> None:
    """Control characters are escaped as in JSON; every other character stays."""
    assert printable("\x1b[2J früh 🌵\n") == r"\u001b[2J früh 🌵\n"


def test_one_line_has_single_spaces() -> None:
    """A text of several lines becomes one line."""
    assert one_line(ValueError(" a\n\tb\r\n c ")) == "a b c"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 500, "x" * 500),
        ("x" * 501, "x" * 499 + "…"),
        ("a\nb", r"a\nb"),
        ("\n" * 500, r"\n" * 249 + "\\…"),
    ],
)
def test_excerpt_has_at_most_500_characters(text: str, shown: str) -> None:
    """An excerpt is one line of at most 500 characters; a cut text ends with an ellipsis."""
    assert excerpt(text) == shown
