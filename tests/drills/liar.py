"""A service whose store acknowledges plants before it keeps them, for the drills to catch."""

import os
import time
from queue import SimpleQueue
from threading import Thread
from typing import Any

from plantstore import Plant, SQLStore
from plantstore.stores.engines import make_engine

from ..sites import make_site


class Liar(SQLStore):
    """A store that is a fifth of a second late."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._promised: SimpleQueue[Plant] = SimpleQueue()
        Thread(target=self._keep, daemon=True).start()

    def add(self, plant: Plant) -> None:
        """Promise to keep a plant."""
        self._promised.put(plant)

    def _keep(self) -> None:
        while True:
            time.sleep(0.2)
            self.add_all([self._promised.get() for _ in range(self._promised.qsize())])


app = make_site(store=Liar(make_engine(os.environ["PLANTSTORE_STORE"])))
