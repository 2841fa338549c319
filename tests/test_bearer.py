"""Bearer tokens: their form, and what the log says about a refused one."""

import re
import zlib

import pytest

from plantstore import create_app
from plantstore.bearer import make_token
from tests.support.responses import check_error
from tests.support.sites import ROSE

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def test_token_has_a_prefix_and_a_checksum() -> None:
    """A new token is plt_, 43 random characters of base 62, and their CRC-32 in base 62."""
    made = {make_token() for _ in range(100)}
    assert len(made) == 100
    for token in made:
        random, checksum = re.fullmatch("plt_([0-9A-Za-z]{43})([0-9A-Za-z]{6})", token).groups()  # type: ignore[union-attr]
        number = 0
        for digit in checksum:
            number = number * 62 + BASE62.index(digit)
        assert number == zlib.crc32(random.encode())


def test_log_tells_typos_from_revoked_tokens(caplog: pytest.LogCaptureFixture) -> None:
    """The log says whether a refused token was mistyped, revoked or is of another form."""
    caplog.set_level("INFO", "plantstore")
    client = create_app({"PLANTSTORE_TOKENS": "s3cret"}).test_client()
    made = make_token()
    last = "a" if made[-1] != "a" else "b"
    for token, reason in (
        (made, "The token was revoked, has expired, or is one of another service."),
        (made[:-1] + last, "The token was mistyped or cut: its checksum is wrong."),
        (made[:-1], "The token was mistyped or cut: its checksum is wrong."),
        ("plt_", "The token was mistyped or cut: its checksum is wrong."),
        ("other", "The token is unknown."),
        ("a=b", "The token is malformed."),
    ):
        caplog.clear()
        headers = {"Authorization": f"Bearer {token}"}
        check_error(client.post("/plants", json=ROSE, headers=headers), 40102)
        assert caplog.messages[0].startswith(f"40102: {reason} (client: None, ")
        assert token not in caplog.text.replace("plantstore", "")
