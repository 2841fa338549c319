"""A minimal Flask application: constant bytes, no token check, no store."""

from flask import Flask

app = Flask(__name__)


@app.post("/plants")
def create_plant():
    return b'{"name":"Monstera","tag":"indoor"}'
