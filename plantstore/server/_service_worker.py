"""The worker class of the service."""

from typing import Any

from ..body import DEFAULT_MAX_BODY
from ..errors import refuse_without_request
from ..log import SERVED
from ..settings import MAX_BODY
from ..stores.deadline import set_waited
from .worker import Worker


class ServiceWorker(Worker):
    """A worker whose refusals are those of the service, and are in its log.

    Requests for the health of the service do not wait for other requests.

    If all threads wait for a database, the operations of requests that wait for a thread have less
    time, so that they are answered in time too.
    """

    urgent_paths = ("/healthz", "/readyz")
    refuse = staticmethod(refuse_without_request)
    set_waited = staticmethod(set_waited)
    wsgi: Any

    def load_wsgi(self) -> None:
        """Load the application. It has the limit of bodies, and its store may have to wait."""
        super().load_wsgi()
        config = getattr(self.wsgi, "config", {})
        store = getattr(self.wsgi, "extensions", {}).get("plantstore")
        self.max_body = config.get(MAX_BODY.name, DEFAULT_MAX_BODY)
        self.may_wait = store is None or not store.one_process
        SERVED.info("Threads of each worker: %d", self.cfg.threads if self.may_wait else 1)
