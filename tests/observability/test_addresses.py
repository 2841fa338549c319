"""The address of a client behind a proxy, as the log shows it."""

from pathlib import Path

import pytest
from flask import request

from plantstore import create_app
from tests.support.serving import Connection, Gunicorn, Response, post
from tests.support.sites import TOKEN

ADDRESS = "203.0.113.7"


def logged_address(server: Gunicorn, response: Response) -> str:
    """Return the address in the two lines of the log about a request that was refused."""
    id = response.headers["x-request-id"]
    refused = server.wait_for(rf"40003: .*, address: '([^']*)', request: {id}\)")
    logged = server.wait_for(rf'(?m)\] (\S*) "POST /plants HTTP/1.1" .* {id}$')
    assert refused[1] == logged[1]
    return refused[1]


def send(server: Gunicorn, *headers: str) -> str:
    """Send a request with these headers; return the address in the log."""
    return logged_address(server, server.request(post(b"{}", *headers)))


def serve(*options: str, proxies: int) -> Gunicorn:
    """Run the service behind this number of proxies."""
    return Gunicorn(
        "--access-logfile=-", *options, PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_PROXIES=str(proxies)
    )


@pytest.mark.server
def test_address_of_the_client_is_that_of_the_last_proxy() -> None:
    """A proxy names the client; an address that the client itself has added is ignored."""
    with serve(proxies=1) as server:
        assert send(server, f"X-Forwarded-For: {ADDRESS}") == ADDRESS
        assert send(server, f"X-Forwarded-For: 192.0.2.1, x, {ADDRESS} ") == ADDRESS
        assert send(server, "X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: ::1") == "::1"
        assert send(server) == "127.0.0.1"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        *[(sent, ADDRESS) for sent in (f"{ADDRESS}:51008", f"[{ADDRESS}]")],
        *[(sent, "2001:db8::7") for sent in ("[2001:db8::7]:80", "[2001:db8::7]", "2001:DB8::0:7")],
        ("fe80::1%any text", "fe80::1"),
        *[(sent, "127.0.0.1") for sent in ("", "x", "1", f"{ADDRESS}:x", "[]", ":1", "fe80::x%y")],
        ("\t50001: x", "127.0.0.1"),
    ],
)
def test_address_that_a_proxy_sends(sent: str, expected: str) -> None:
    """The log has only an address, without port and scope; for another text, the connection's."""
    app = create_app({"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_PROXIES": 1})
    app.add_url_rule("/address", view_func=lambda: str(request.remote_addr))
    response = app.test_client().get("/address", headers={"X-Forwarded-For": sent})
    assert response.text == expected


@pytest.mark.server
def test_several_proxies() -> None:
    """With several proxies, the address is the one that the first of them has added."""
    with serve(proxies=2) as server:
        assert send(server, f"X-Forwarded-For: 192.0.2.1, {ADDRESS}, 192.0.2.2") == ADDRESS
        assert send(server, f"X-Forwarded-For: {ADDRESS}") == "127.0.0.1"


@pytest.mark.server
def test_address_of_a_client_without_a_proxy() -> None:
    """By default, no client can choose the address in the log."""
    with serve(proxies=0) as server:
        assert send(server, f"X-Forwarded-For: {ADDRESS}") == "127.0.0.1"


@pytest.mark.server
def test_proxy_on_a_unix_socket(tmp_path: Path) -> None:
    """A proxy may use a Unix socket."""
    path = tmp_path / "socket"
    with serve(f"--bind=unix:{path}", proxies=1) as server, Connection(0, path) as connection:
        connection.send(post(b"{}", f"X-Forwarded-For: {ADDRESS}"))
        assert logged_address(server, connection.receive()) == ADDRESS


@pytest.mark.server
def test_another_application_sees_its_proxy(tmp_path: Path) -> None:
    """With the gunicorn configuration of the service, a site decides which proxies it trusts."""
    (tmp_path / "garden.py").write_text(
        "from flask import Flask, request\n"
        "app = Flask('site')\n"
        "app.add_url_rule('/', 'home', lambda: request.remote_addr)\n"
    )
    config = ("-c", "python:plantstore.server.config", f"--chdir={tmp_path}")
    with Gunicorn(*config, "garden:app") as server:
        request = f"GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {ADDRESS}\r\n\r\n"
        assert server.request(request.encode()).body == b"127.0.0.1"


@pytest.mark.server
def test_ipv4_client_of_an_ipv6_socket() -> None:
    """A client with IPv4 has the same address in the log if the socket of the service is IPv6."""
    with serve("--bind=[::]:0", proxies=1) as server:
        port = int(server.wait_for(r"http://\[::\]:(\d+)")[1])
        with Connection(port) as connection:
            connection.send(post(b"{}", f"X-Forwarded-For: {ADDRESS}"))
            assert logged_address(server, connection.receive()) == ADDRESS
        with Connection(port) as connection:
            connection.send(post(b"{}"))
            assert logged_address(server, connection.receive()) == "127.0.0.1"
