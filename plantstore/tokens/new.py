"""New tokens."""

import secrets

from ..auth import DIGITS, PREFIX, checksum

_LENGTH = 43  # 256 bits


def make_token() -> str:
    """Return a new token: ``plt_``, 43 random characters and 6 characters of a checksum.

    Secret scanners can find such a token and verify it without the service.
    """
    random = "".join(secrets.choice(DIGITS) for _ in range(_LENGTH))
    return f"{PREFIX}{random}{checksum(random)}"
