"""The folder in which the workers of the service share their metrics."""

import atexit
import os
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir, mkdtemp
from typing import Any

from ..observability.processes import has_ended
from ..settings import METRICS, Settings, SettingsError

# The variable with the folder.
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
# The name of a folder: this, the number of its main process, and a random part.
_PREFIX = "plantstore-metrics-"

_is_created = False


def create_folder(server: Any) -> None:
    """Create the folder if the service has metrics, before any application is loaded.

    :param server: the main process of gunicorn.
    """
    global _is_created
    if _is_created or not _has_metrics(server):
        return
    _is_created = True
    try:
        _remove_old()
        folder = mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
        if server.cfg.uid != os.geteuid():
            os.chown(folder, server.cfg.uid, server.cfg.gid)
    except OSError as error:
        os.environ.pop(_FOLDER, None)  # A main process that was replaced has its own.
        server.log.error("The workers cannot share their metrics: %s", error.strerror)
        return
    os.environ[_FOLDER] = folder
    atexit.register(_remove, os.getpid(), folder)


def _remove_old() -> None:
    """Remove the folders of main processes that were killed."""
    for folder in Path(gettempdir()).glob(f"{_PREFIX}*"):
        process = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdecimal() and has_ended(int(process)):
            rmtree(folder, ignore_errors=True)  # It does not follow a link.


def _has_metrics(server: Any) -> bool:
    try:
        # gunicorn sets the variables of its option --env later.
        return Settings({**os.environ, **server.cfg.env})[METRICS]
    except SettingsError:  # It is reported when the service starts.
        return False


def _remove(process: int, folder: str) -> None:
    if os.getpid() == process:  # The workers also call this when they end.
        rmtree(folder, ignore_errors=True)
