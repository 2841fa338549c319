"""The address of a client behind a proxy, as the log shows it."""

from pathlib import Path

import pytest
from flask import request

from plantstore import create_app
from tests.support.serving import Connection, Gunicorn, post
from tests.support.sites import TOKEN

ADDRESS = "203.0.113.7"


@pytest.mark.parametrize(
    ("proxies", "sent", "expected"),
    [
        (0, ADDRESS, "127.0.0.1"),  # By default, no client can choose the address in the log.
        (1, f"192.0.2.1, x, {ADDRESS} ", ADDRESS),
        (2, f"192.0.2.1, {ADDRESS}, 192.0.2.2", ADDRESS),
        (2, ADDRESS, "127.0.0.1"),
        *[(1, sent, ADDRESS) for sent in (f"{ADDRESS}:51008", f"[{ADDRESS}]")],
        *[(1, sent, "2001:db8::7") for sent in ("[2001:db8::7]:80", "[2001:DB8::0:7]")],
        (1, "fe80::1%any text", "fe80::1"),
        *[(1, sent, "127.0.0.1") for sent in ("", "1", "1.2.3.4:x", "[]", "fe80::x%y", "\t5: x")],
    ],
)
def test_address_that_a_proxy_sends(proxies: int, sent: str, expected: str) -> None:
    """The address is that which the first proxy names, or for another text, of the connection."""
    app = create_app({"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_PROXIES": proxies})
    app.add_url_rule("/address", view_func=lambda: str(request.remote_addr))
    response = app.test_client().get("/address", headers={"X-Forwarded-For": sent})
    assert response.text == expected


@pytest.mark.server
def test_address_of_the_client_is_that_of_the_last_proxy(tmp_path: Path) -> None:
    """Both lines of the log have the address that a proxy names, also on a Unix socket."""
    path = tmp_path / "socket"
    binds = ("--bind=[::]:0", f"--bind=unix:{path}")
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_PROXIES": "1"}
    with Gunicorn("--access-logfile=-", *binds, **settings) as server:
        port = int(server.wait_for(r"http://\[::\]:(\d+)")[1])
        for socket, headers, expected in (
            (None, [f"X-Forwarded-For: {ADDRESS}"], ADDRESS),
            (None, ["X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: ::1"], "::1"),
            (None, [], "127.0.0.1"),
            (path, [f"X-Forwarded-For: {ADDRESS}"], ADDRESS),
        ):
            with Connection(port, socket) as connection:
                connection.send(post(b"{}", *headers))
                id = connection.receive().headers["x-request-id"]
            server.wait_for(rf"40003: .*, address: '{expected}', request: {id}\)")
            server.wait_for(rf'(?m)\] {expected} "POST /plants HTTP/1.1" .* {id}$')


@pytest.mark.server
def test_another_application_sees_its_proxy(tmp_path: Path) -> None:
    """With the gunicorn configuration of the service, a site decides which proxies it trusts."""
    code = "from flask import Flask, request\napp = Flask('site')\n"
    code += "app.add_url_rule('/', 'home', lambda: request.remote_addr)"
    (tmp_path / "garden.py").write_text(code)
    config = ("-c", "python:plantstore.server.config", f"--chdir={tmp_path}")
    with Gunicorn(*config, "garden:app") as server:
        request = f"GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {ADDRESS}\r\n\r\n"
        assert server.request(request.encode()).body == b"127.0.0.1"
