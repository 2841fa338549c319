"""Text for messages: one line, printable, of limited length."""

import pytest

from plantstore.text import one_line, printable


def test_printable_escapes_control_characters() -> None:
    """Control characters are escaped as in JSON; every other character stays."""
    assert printable("\x1b[2J früh 🌵\n") == r"\u001b[2J früh 🌵\n"


def test_one_line_has_single_spaces() -> None:
    """A text of several lines becomes one printable line, with a space for each line break."""
    assert one_line(ValueError(" a\n\tb\r\n c ")) == "a b c"
    assert one_line("a\x1bb") == r"a\u001bb"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 500, "x" * 500),
        ("x" * 501, "x" * 499 + "…"),
        ("a\nb", "a b"),
        ("\x1b" * 500, (r"\u001b" * 500)[:499] + "…"),
        ("x" * 10**7, "x" * 499 + "…"),
    ],
    ids=lambda text: text[:9].encode("unicode_escape").decode(),
)
def test_one_line_of_at_most_500_characters(text: str, shown: str) -> None:
    """A line may have a limit, and then ends with an ellipsis if it was cut."""
    assert one_line(text, 500) == shown
