"""The service under gunicorn, with protections that gunicorn does not have by default."""

import sys
from collections.abc import Sequence
from contextvars import Context

from gunicorn.app.wsgiapp import WSGIApplication
from gunicorn.errors import ConfigError

from .config import worker_class

_CONFIG = "python:plantstore.server.config"


def serve(options: Sequence[str]) -> None:
    """Serve until a signal ends the process.

    :param options: options of gunicorn.
    """
    try:
        # In an empty context: a tracing agent would take each request for a part of this command.
        Context().run(_Service(options).run)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:  # A wrong option.
        line, _, _ = str(error).partition("\n")  # gunicorn adds a traceback to some messages.
        sys.exit(f"Error: {line.rstrip(': ')}")


class _Service(WSGIApplication):
    def __init__(self, options: Sequence[str]) -> None:
        self._options = options
        super().__init__("%(prog)s", prog="plantstore serve")

    def load_default_config(self) -> None:
        """Set the defaults, which a configuration file of the operator may override."""
        super().load_default_config()
        self.load_config_from_module_name_or_filename(_CONFIG)

    def load_config(self) -> None:
        """Read the options, and not a configuration file that happens to be in the folder."""
        own, sys.argv = sys.argv, [sys.argv[0], "--config", _CONFIG, *self._options]
        try:
            super().load_config()
        finally:
            sys.argv = own
        if {"", "unix:", "unix://"} & {*self.cfg.settings["bind"].get()}:
            raise ConfigError("--bind needs an address, such as 127.0.0.1:8000")
        if self.cfg.settings["worker_class"].get() != worker_class:
            raise ConfigError(f"plantstore serve has no option -k: use gunicorn -c {_CONFIG}")

    def init(self, parser: object, opts: object, args: Sequence[str]) -> None:
        """Refuse the name of another application."""
        if args:
            raise ConfigError(f"plantstore serve has no argument {args[0]}")
        super().init(parser, opts, args)
