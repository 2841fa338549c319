"""The files by which the workers of the service share their metrics.

prometheus-client names the files after processes. Here they have the numbers of workers, which are
used again. So the number of files does not grow, and a worker continues the counts of an earlier
one.
"""

import atexit
import os
from itertools import count
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from ..settings import METRICS, Settings, SettingsError

# The variable with the folder of the files.
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
# The size of a file in bytes, as prometheus-client creates it. The metrics take less.
_SIZE = 65536
_KINDS = ("counter", "gauge_livesum", "histogram")

_folder: str | None = None


def create_folder(server: Any) -> None:
    """Create the folder of the files if the service has metrics, before any application is loaded.

    :param server: the main process of gunicorn.
    """
    global _folder
    if _folder is None and _has_metrics(server):
        _folder = mkdtemp(prefix="plantstore-metrics-")
        os.environ[_FOLDER] = _folder
        atexit.register(_remove, os.getpid(), _folder)
        _create_files(_folder, "main", server.cfg)
        _use("main")  # With preload_app, the main process loads the application.


def create_files(server: Any, worker: Any) -> None:
    """Give a new worker a number, and create its files.

    :param server: the main process of gunicorn.
    :param worker: the worker, before the fork.
    """
    used = {_number(one) for one in server.WORKERS.values()}
    worker.number = next(number for number in count() if number not in used)
    if _folder is not None:
        try:
            _create_files(_folder, worker.number, server.cfg)
        except OSError as error:
            worker.number = None
            server.log.error("A worker cannot share its metrics: %s", error.strerror)


def use_files(worker: Any) -> None:
    """Let a worker use its files. Without files, it has metrics of its own, which are not served.

    :param worker: the worker, after the fork.
    """
    number = _number(worker)
    if _folder is not None and number is None:
        del os.environ[_FOLDER]
    elif _folder is not None:
        _use(number)


def forget_requests(worker: Any) -> None:
    """Forget the requests in progress of a worker that has ended.

    :param worker: the worker.
    """
    number = _number(worker)
    if number is not None and _folder is not None:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(number, _folder)  # type: ignore[no-untyped-call]


def _number(worker: Any) -> int | None:
    # A configuration of the operator may have a pre_fork of its own.
    number: int | None = getattr(worker, "number", None)
    return number


def _has_metrics(server: Any) -> bool:
    try:
        # gunicorn sets the variables of its option --env later.
        return Settings({**os.environ, **server.cfg.env})[METRICS]
    except SettingsError:  # It is reported when the service starts.
        return False


def _create_files(folder: str, name: object, cfg: Any) -> None:
    """Create the files of a process, with their space on the disk.

    A disk that becomes full later would end the process. A file that is not complete could not be
    read by the other processes.
    """
    # Something may have cleaned the temporary folder.
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chown(folder, cfg.uid, cfg.gid)
    for kind in _KINDS:
        path = os.path.join(folder, f"{kind}_{name}.db")
        if not os.path.exists(path):
            with open(f"{path}.new", "wb") as file:
                file.write(bytes(_SIZE))
            os.chown(f"{path}.new", cfg.uid, cfg.gid)
            os.rename(f"{path}.new", path)


def _use(name: object) -> None:
    from ..observability import metrics

    metrics.process_name = lambda: name


def _remove(process: int, folder: str) -> None:
    if os.getpid() == process:  # The workers also call this when they end.
        rmtree(folder, ignore_errors=True)
