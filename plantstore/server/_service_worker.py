"""The worker class of the service."""

from ..errors import ERRORS
from ..stores.deadline import set_waited
from .worker import Worker


class ServiceWorker(Worker):
    """A worker whose refusals are those of the service.

    If all threads wait for a database, the operations of requests that wait for a thread have less
    time, so that they are answered in time too.
    """

    messages = {number: message for number, (message, _) in ERRORS.items()}
    set_waited = staticmethod(set_waited)
