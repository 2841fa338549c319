"""New tokens."""

import re
import string
import zlib

from plantstore.tokens.new import make_token

BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase


def test_token_has_a_prefix_and_a_checksum() -> None:
    """A new token is plt_, 43 random characters of base 62, and their CRC-32 in base 62."""
    made = {make_token() for _ in range(100)}
    assert len(made) == 100
    for token in made:
        assert re.fullmatch("plt_[0-9A-Za-z]{49}", token)
        digits = [62**place * BASE62.index(digit) for place, digit in enumerate(token[:-7:-1])]
        assert sum(digits) == zlib.crc32(token[4:-6].encode())
