"""Bearer tokens: their form, their digest, and the tokens that this package makes."""

import re
import secrets
import string
from binascii import crc32
from hashlib import sha256

#: A bearer token (RFC 6750 section 2.1).
B64TOKEN: re.Pattern[str] = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
#: The beginning of every token that this package makes.
PREFIX = "plt_"

# The digest of a token in the settings.
_DIGEST = re.compile(r"sha256:([0-9A-Fa-f]{64})")
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM_LENGTH = 43  # 256 bits
_CHECKSUM_LENGTH = 6


def token_digest(token: str) -> bytes:
    """Return the SHA-256 digest of a token.

    :param token: plain text, or ``sha256:<64 hex>``.
    :raises ValueError: if the token has another form. The message does not show the token.
    """
    hashed = _DIGEST.fullmatch(token)
    if hashed is not None:
        return bytes.fromhex(hashed[1])
    if B64TOKEN.fullmatch(token) is None:
        raise ValueError(
            "neither a bearer token (letters, digits and -._~+/, then any number of =)"
            " nor sha256:<64 hex>"
        )
    return sha256(token.encode()).digest()


def make_token() -> str:
    """Return a new token: ``plt_``, 43 random characters and 6 characters of a checksum.

    Secret scanners can find such a token and verify it without the service. The checksum is that
    of GitHub's tokens: CRC-32 in base 62.
    """
    random = "".join(secrets.choice(_DIGITS) for _ in range(_RANDOM_LENGTH))
    return f"{PREFIX}{random}{_checksum(random)}"


def describe_unknown(token: str) -> str:
    """Return the probable reason why a token is not accepted, without any part of the token."""
    if not token.startswith(PREFIX):
        return "The token is unknown."
    random, checksum = token[len(PREFIX) : -_CHECKSUM_LENGTH], token[-_CHECKSUM_LENGTH:]
    if len(random) == _RANDOM_LENGTH and checksum == _checksum(random):
        return "The token was revoked, has expired, or is one of another service."
    return "The token was mistyped or cut: its checksum is wrong."


def _checksum(text: str) -> str:
    number, digits = crc32(text.encode()), ""
    for _ in range(_CHECKSUM_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
