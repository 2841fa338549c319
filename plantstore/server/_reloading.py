"""A reload (SIGHUP) that never ends a running service."""

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from gunicorn.sock import ssl_context

from ..tokens import shared

# The seconds in which a new worker must be able to start. The main process waits meanwhile.
_TIMEOUT = 10
# The exit code of a copy whose worker could start. No code of an operator has it by accident.
_SUCCESS = 77
# The options that gunicorn cannot change while old workers use the address and the file.
_FIXED = ("address", "pidfile", "reuse_port")

#: A function that raises RuntimeError if a setting of the service is wrong.
Check = Callable[[Any], None]


def check_reloads(server: Any, check: Check, report: Callable[[Any], None]) -> None:
    """Let the main process of gunicorn refuse a reload that would fail, and continue as before.

    :param server: the main process.
    :param check: the check of the settings.
    :param report: writes to the log what is served after a reload.
    """
    server.handle_hup = partial(_handle_hup, server, server.handle_hup, check, report)


def checks_reloads(server: Any) -> bool:
    """Return whether :func:`check_reloads` was called.

    :param server: the main process.
    """
    return "handle_hup" in vars(server)


def _handle_hup(
    server: Any, reload: Callable[[], None], check: Check, report: Callable[[Any], None]
) -> None:
    cfg = server.cfg
    try:
        code = _exit_code_of_copy(partial(_start_worker, server, check))
        if code == _SUCCESS:
            reload()
            report(server)
            return
        if code == -signal.SIGALRM:
            server.log.error("A worker could not start within %d seconds", _TIMEOUT)
    except (Exception, SystemExit) as error:
        if os.getpid() != server.pid:
            raise  # This is a new worker, which ends.
        server.app.cfg = server.cfg = cfg
        server.log.error("The reload has failed: %r", error)
    server.log.error("The service continues as before. Correct what is wrong, then reload again.")


def _exit_code_of_copy(function: Callable[[], None]) -> int:
    """Call a function in a copy of this process, and return the exit code of the copy."""
    process = os.fork()
    if process == 0:
        _run_and_end(function)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def _run_and_end(function: Callable[[], None]) -> NoReturn:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_TIMEOUT)
    try:
        function()
    finally:
        os._exit(1)  # Whatever happens, the copy must not continue as a main process.


def _start_worker(server: Any, check: Check) -> None:
    """Reload and start a worker, which then ends, without a change of the running service."""
    shared.ignore_last()  # The file of tokens itself must be right. The new workers get its tokens.
    server.setup = partial(_set_up, server, server.setup, check, server.cfg)
    try:
        server.reload()
    except RuntimeError as error:
        server.log.error("%s", error)
    except Exception:  # noqa: BLE001  # It may be any exception of the operator's code.
        server.log.exception("The new configuration cannot be used")


def _set_up(server: Any, set_up: Callable[[Any], None], check: Check, old: Any, app: Any) -> None:
    """Set up the copy of the main process, and start a worker instead of reloading."""
    set_up(app)
    cfg = server.cfg
    if any(getattr(cfg, name) != getattr(old, name) for name in _FIXED):
        raise RuntimeError("A reload cannot change bind, pidfile or reuse_port. Start again.")
    if min(cfg.workers, cfg.worker_connections, cfg.threads) < 1:
        raise RuntimeError("workers, threads and worker_connections must be at least 1")
    check(server)
    if cfg.is_ssl:
        ssl_context(cfg)
    cfg.on_reload(server)
    worker = server.worker_class(0, os.getppid(), server.LISTENERS, app, 0, cfg, server.log)
    worker.run = partial(os._exit, _SUCCESS)
    cfg.pre_fork(server, worker)
    cfg.post_fork(server, worker)
    worker.init_process()
