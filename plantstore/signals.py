"""The signal of a new plant."""

import logging

from blinker import NamedSignal, Namespace
from flask import g
from flask.globals import app_ctx

from .stores.base import Plant

#: The signal that is sent after a request has stored a new plant. The sender is the Flask
#: application, ``plant`` the :class:`~plantstore.Plant`, and ``client`` the name of
#: the client. An exception that a receiver raises is logged and has no other effect.
plant_added: NamedSignal = Namespace().signal("plant-added")

# The first use of app.logger would add a handler to the logger of the site.
_logger: logging.Logger = logging.getLogger("plantstore")


def announce(plant: Plant) -> None:
    """Log a new plant of the current request at level INFO, and send :data:`plant_added`."""
    client = g.plantstore_client
    _logger.info("Plant %d was added (client: %r)", plant.id, client)
    if not plant_added.receivers or plant_added.is_muted:
        return
    app = app_ctx.app
    # Signal.send() would stop at the first receiver that raises.
    for receiver in plant_added.receivers_for(app):
        try:
            app.ensure_sync(receiver)(app, plant=plant, client=client)
        except Exception:
            message = "A receiver of plant_added failed (plant %d, client %r)"
            app.logger.exception(message, plant.id, client)
