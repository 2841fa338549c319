"""The signals of new, changed and removed plants."""

import logging
from typing import Any

from blinker import NamedSignal, Namespace
from flask import g
from flask.globals import app_ctx

from .log import ADDED, CHANGED, REMOVED, log
from .stores.base import Plant

_signals = Namespace()

#: The signal that is sent after a request has stored a new plant. The sender is the Flask
#: application, ``plant`` the :class:`~plantstore.Plant`, and ``client`` the name of
#: the client. An exception that a receiver raises is logged and has no other effect.
plant_added: NamedSignal = _signals.signal("plant-added")

#: The signal that is sent after a request has changed a plant, with the same arguments as
#: :data:`plant_added`. ``plant`` has the new content.
plant_changed: NamedSignal = _signals.signal("plant-changed")

#: The signal that is sent after a request has removed a plant. The sender is the Flask
#: application, ``id`` the id of the plant, and ``client`` the name of the client. An exception
#: that a receiver raises is logged and has no other effect.
plant_removed: NamedSignal = _signals.signal("plant-removed")


def announce_added(plant: Plant) -> None:
    """Log a new plant of the current request at level INFO, and send :data:`plant_added`."""
    if ADDED.isEnabledFor(logging.INFO):  # Rarely: the time is that of each create.
        log(ADDED, logging.INFO, "Plant %d was added", plant.id)
    _send(plant_added, plant.id, plant=plant)


def announce_changed(plant: Plant) -> None:
    """Log that the current request has changed a plant, and send :data:`plant_changed`."""
    log(CHANGED, logging.INFO, "Plant %d was changed", plant.id)
    _send(plant_changed, plant.id, plant=plant)


def announce_removed(id: int) -> None:
    """Log that the current request has removed a plant, and send :data:`plant_removed`."""
    log(REMOVED, logging.INFO, "Plant %d was removed", id)
    _send(plant_removed, id, id=id)


def _send(signal: NamedSignal, plant_id: int, **values: Any) -> None:
    if not signal.receivers or signal.is_muted:
        return
    app, client = app_ctx.app, g.plantstore_client
    # Signal.send() would stop at the first receiver that raises.
    for receiver in signal.receivers_for(app):
        try:
            app.ensure_sync(receiver)(app, **values, client=client)
        except Exception as error:  # noqa: BLE001  # It has no other effect.
            message = f"A receiver of {signal.name.replace('-', '_')} failed for plant %d"
            log(app.logger, logging.ERROR, message, plant_id, fault=error)
