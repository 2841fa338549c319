"""The user who runs the tests."""

import codecs
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Be a user who is not root."""
    if os.geteuid() != 0:
        yield
        return
    codecs.lookup("idna")  # This user may not import it, since Python may be in a folder of root.
    os.setresuid(1234, 1234, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
