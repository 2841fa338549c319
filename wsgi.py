"""The standalone service, for any WSGI server."""

import sys

from plantstore import SettingsError, create_app

try:
    app = create_app()
except SettingsError as error:
    print(f"plantstore: {error}", file=sys.stderr)
    sys.exit(3)  # With this code a gunicorn worker ends gunicorn, instead of being restarted.
