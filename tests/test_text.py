"""Text for messages: one line, printable, of limited length."""

import pytest

from plantstore.text import one_line


@pytest.mark.parametrize(
    ("text", "longest", "line"),
    [
        ("\x1b[2J früh 🌵\n", None, r"\u001b[2J früh 🌵"),
        (ValueError(" a\n\tb\r\n c "), None, "a b c"),
        ("x" * 501, None, "x" * 501),
        ("x" * 500, 500, "x" * 500),
        ("x" * 501, 500, "x" * 499 + "…"),
        ("a\nb", 500, "a b"),
        ("\x1b" * 500, 500, (r"\u001b" * 500)[:499] + "…"),
        ("x" * 10**7, 500, "x" * 499 + "…"),
    ],
    ids=lambda text: ascii(text)[:9],
)
def test_one_line(text: object, longest: int | None, line: str) -> None:
    """A text becomes one printable line with single spaces, which ends with an ellipsis if cut."""
    assert one_line(text, longest) == line
