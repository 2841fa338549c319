"""The configuration of gunicorn: a bare `gunicorn` in this folder reads it."""

from plantstore.server.config import *  # noqa: F403
