"""The lines of a file of tokens."""

from datetime import datetime
from hashlib import sha256

import pytest

from plantstore.blueprint import RIGHTS
from plantstore.tokens.lines import read_tokens


@pytest.mark.parametrize(
    ("line", "client", "expires", "operations"),
    [
        ("t", "line-1", None, None),
        ("t kiosk  of\tFlora # comment", "kiosk of Flora", None, None),
        ("t kiosk#1", "kiosk#1", None, None),
        ("\n# nothing\r\nt last Fauna\u2028x\x0cx\r", "last Fauna x x", None, None),
        ("t expires=2027-01-31", "line-1", "2027-01-31T00:00", None),
        ("t kiosk expires=2027-01-31T12:30Z #", "kiosk", "2027-01-31T12:30", None),
        ("t kiosk expires=20270131T123000+0200", "kiosk", "2027-01-31T10:30", None),
        (f"t kiosk operations={','.join(RIGHTS)}", "kiosk", None, RIGHTS),
        ("t kiosk operations=read,create,read # x", "kiosk", None, ("read", "create")),
        ("t kiosk operations=read expires=2027-01-31", "kiosk", "2027-01-31T00:00", ("read",)),
        ("t a b expires=2027-01-31 operations=read", "a b", "2027-01-31T00:00", ("read",)),
    ],
)
def test_line_of_a_token(
    line: str, client: str, expires: str | None, operations: tuple[str, ...] | None
) -> None:
    """A line has a token, optionally a name, and in any order options; a line feed ends it."""
    (token,) = read_tokens(f"{line}\n")
    assert (token.digest, token.client) == (sha256(b"t").digest(), client)
    assert token.expires == (datetime.fromisoformat(f"{expires}+00:00") if expires else None)
    assert token.operations == operations


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hunter2#token", "is neither a bearer token"),
        ("t hunter2 expires=tomorrow", "has an invalid expires="),
        ("t hunter2 expires=9999-12-31T23:59-01:00", "has an invalid expires="),
        ("t expires=2027-01-31 hunter2", "has an invalid name"),
        ("t hunter2 expire=2027-01-31", "has an invalid name"),
        ("t expires=2027-01-31 expires=2027-01-31", "has an invalid name"),
        ("t kiosk Expires: 2027-01-31", "has an invalid name"),
        ("t kiosk operations=", "has an invalid operations=; write some of create, read, list, "),
        ("t kiosk operations=hunter2", "has an invalid operations="),
        ("t kiosk operations=create, read", "has an invalid name"),
        ("t kiosk plt_hunter2", "has a second token"),
        (f"t kiosk sha256:{sha256(b'hunter2').hexdigest()}", "has a second token"),
        (f"t hunter2sha256:{sha256(b't').hexdigest()} kiosk", "has a second token"),
        ("t kiosk\rhunter2", "has a carriage return"),
        ("valid hunter2", "has the token of line 1"),
        (f"sha256:{sha256(b'valid').hexdigest()}", "has the token of line 1"),
    ],
)
def test_invalid_line_is_refused(line: str, message: str) -> None:
    """An invalid line is refused; the message has its number, and nothing of its text."""
    with pytest.raises(ValueError, match=f"^line 3 {message}") as caught:
        read_tokens(f"valid\n\n{line}\nother\n")
    assert "hunter2" not in str(caught.value)
