"""The worker class of the service."""

import logging
import sys
import time

from ..body import DEFAULT_MAX_BODY
from ..log import REFUSED, SERVED, log_line
from ..responses import dump_json, request_id
from ..settings import MAX_BODY
from ..stores.deadline import note_queued
from .worker import Worker


class ServiceWorker(Worker):
    """A worker whose refusals are those of the service, and are in its log.

    Requests for the health of the service do not wait for others. The time for which a request
    waits for a thread is a part of the time of its operation, so it is answered in time, too.
    """

    urgent_paths = ("/healthz", "/readyz")
    note_queued = staticmethod(note_queued)

    @staticmethod
    def refuse(
        number: int, message: str, address: str | None, fault: BaseException | None
    ) -> tuple[bytes, dict[str, str]]:
        """Log what the server refuses, and return an Error, as :meth:`Worker.refuse` says."""
        id = request_id({})
        level = logging.INFO if fault is None else logging.ERROR
        log_line(REFUSED, level, "%s", (message,), (None, address, id), number=number, fault=fault)
        headers = {"Content-Type": "application/json", "X-Request-ID": id}
        return dump_json({"error": number, "message": message}), headers

    def init_process(self) -> None:
        """Serve until the worker ends. If no thread can be started, one line of the log says so."""
        try:
            super().init_process()
        except RuntimeError as error:
            if "new thread" not in str(error):
                raise
            self.log.error("No thread can be started: raise TasksMax= or ulimit -u")
            time.sleep(1)  # gunicorn starts another worker at once.
            sys.exit(1)

    def load_wsgi(self) -> None:
        """Load the application. It has the limit of bodies, and its store may have to wait."""
        super().load_wsgi()
        config = getattr(self.wsgi, "config", {})
        store = getattr(self.wsgi, "extensions", {}).get("plantstore")
        self.max_body = config.get(MAX_BODY.name, DEFAULT_MAX_BODY)
        self.needs_threads = store is None or not store.one_process
        SERVED.info("Threads of each worker: %d", self.cfg.threads if self.needs_threads else 1)
