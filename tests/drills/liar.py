"""A service whose store acknowledges plants before it keeps them, for the drills to catch."""

import os
import time
from queue import SimpleQueue
from threading import Thread
from typing import Any

from flask import Flask

from plantstore import Plant, SQLStore, StaticTokens, create_blueprint
from plantstore.stores.engines import make_engine


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


app = Flask(__name__)
app.register_blueprint(
    create_blueprint(
        store=Liar(make_engine(os.environ["PLANTSTORE_STORE"])),
        verify_token=StaticTokens([os.environ["PLANTSTORE_TOKENS"]]),
    )
)
