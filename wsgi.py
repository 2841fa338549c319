"""The standalone service, for any WSGI server."""

from plantstore.wsgi import app as app
