"""What a site can listen to, by Flask's own signals."""

import logging
from typing import TYPE_CHECKING

from blinker import Namespace
from flask import current_app, g

from .stores.base import Plant

if TYPE_CHECKING:
    from flask import Flask

#: Sent by the application within the request, once its store has acknowledged a new
#: plant, with the :class:`~plantstore.Plant` as ``plant`` and the client's name as
#: ``client``. A receiver that raises is logged, and changes nothing.
plant_added = Namespace().signal("plant-added")

# Not the site's, which would get its handler and level only by being asked for.
_log = logging.getLogger("plantstore")


def announce(plant: Plant) -> None:
    """Tell of a new plant whoever listens: the log, and the receivers of :data:`plant_added`."""
    if _log.isEnabledFor(logging.INFO):
        _log.info("Plant %d was added (client: %r)", plant.id, g.plantstore_client)
    if plant_added.receivers and not plant_added.is_muted:
        _send(plant, g.plantstore_client)


def _send(plant: Plant, client: str) -> None:
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001
    # Not by send(), which ends at the first receiver that raises.
    for receiver in plant_added.receivers_for(app):
        try:
            app.ensure_sync(receiver)(app, plant=plant, client=client)
        except Exception:
            failed = "A receiver of plant_added failed (plant %d, client %r)"
            app.logger.exception(failed, plant.id, client)
