"""The least that Flask can do: a view of constant bytes. No check, no store."""

from flask import Flask

app = Flask(__name__)


@app.post("/plants")
def create_plant():
    return b'{"name":"Monstera","tag":"indoor"}'
