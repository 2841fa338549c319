"""The folder in which the workers of the service share their metrics."""

import atexit
import os
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from ..settings import METRICS, Settings, SettingsError

# The variable with the folder.
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"

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
        folder = mkdtemp(prefix="plantstore-metrics-")
        if server.cfg.uid != os.geteuid():
            os.chown(folder, server.cfg.uid, server.cfg.gid)
    except OSError as error:
        os.environ.pop(_FOLDER, None)  # A main process that was replaced has its own.
        server.log.error("The workers cannot share their metrics: %s", error.strerror)
        return
    os.environ[_FOLDER] = folder
    atexit.register(_remove, os.getpid(), folder)


def _has_metrics(server: Any) -> bool:
    try:
        # gunicorn sets the variables of its option --env later.
        return Settings({**os.environ, **server.cfg.env})[METRICS]
    except SettingsError:  # It is reported when the service starts.
        return False


def _remove(process: int, folder: str) -> None:
    if os.getpid() == process:  # The workers also call this when they end.
        rmtree(folder, ignore_errors=True)
