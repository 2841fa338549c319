"""The worker class of the service."""

from ..errors import refuse_without_request
from ..stores.deadline import set_waited
from .worker import Worker


class ServiceWorker(Worker):
    """A worker whose refusals are those of the service, and are in its log.

    Requests for the health of the service do not wait for other requests.

    If all threads wait for a database, the operations of requests that wait for a thread have less
    time, so that they are answered in time too.
    """

    health = (b"GET /healthz ", b"GET /readyz ", b"HEAD /healthz ", b"HEAD /readyz ")
    refuse = staticmethod(refuse_without_request)
    set_waited = staticmethod(set_waited)
