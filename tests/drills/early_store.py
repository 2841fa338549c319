"""A service that acknowledges plants before it stores them. The drill must detect this."""

import os
import time
from queue import SimpleQueue
from threading import Thread
from typing import Any

from plantstore import Plant, SQLStore
from plantstore.blueprint import OPERATIONS
from plantstore.sql.databases import make_engine
from tests.support.sites import make_site


class EarlyStore(SQLStore):
    """A store that stores each plant about a second after it acknowledged it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._waiting: SimpleQueue[Plant] = SimpleQueue()
        Thread(target=self._store_all, daemon=True).start()

    def add(self, plant: Plant) -> None:
        """Acknowledge a plant that is not stored yet."""
        self._waiting.put(plant)

    def _store_all(self) -> None:
        while True:
            time.sleep(1)
            waiting = [self._waiting.get() for _ in range(self._waiting.qsize())]
            self.add_all(waiting, skip_existing=True)


app = make_site(
    store=EarlyStore(make_engine(os.environ["PLANTSTORE_STORE"])), operations=[*OPERATIONS]
)
