"""Whether another process has ended."""

import os


def has_ended(process: int) -> bool:
    """Return whether no process has this id. A process of another user has not ended.

    On Windows, where ``os.kill`` would interrupt it, no process seems to have ended.
    """
    if not hasattr(os, "fork"):
        return False
    try:
        os.kill(process, 0)  # It only looks for the process.
    except (ProcessLookupError, PermissionError, OverflowError) as error:
        return isinstance(error, ProcessLookupError)
    return False
