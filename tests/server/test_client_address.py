"""The address of a client behind a proxy, as the log shows it."""

from pathlib import Path

import pytest

from tests.support.serving import Connection, Gunicorn, Response, post
from tests.support.sites import TOKEN

pytestmark = pytest.mark.server

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


def test_address_of_the_client_is_that_of_the_last_proxy() -> None:
    """A trusted proxy names the client; an address that the client itself has added is ignored."""
    with Gunicorn("--access-logfile=-", PLANTSTORE_TOKENS=TOKEN) as server:
        assert send(server, f"X-Forwarded-For: {ADDRESS}") == ADDRESS
        assert send(server, f"X-Forwarded-For: 192.0.2.1, x, {ADDRESS} ") == ADDRESS
        assert send(server, "X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: ::1") == "::1"
        for forged in ("", "x", "1", f"{ADDRESS}:80", f"{ADDRESS},", "[::1]", "\t50001: x"):
            assert send(server, f"X-Forwarded-For: {forged}") == "127.0.0.1"
        assert send(server) == "127.0.0.1"


@pytest.mark.parametrize("proxies", ["192.0.2.1", "::1", "192.0.2.0/24,fe80::/10", ""])
def test_address_of_a_client_that_is_no_proxy(proxies: str) -> None:
    """A client that is not one of the trusted proxies cannot choose the address in the log."""
    with Gunicorn(
        "--access-logfile=-", f"--forwarded-allow-ips={proxies}", PLANTSTORE_TOKENS=TOKEN
    ) as server:
        assert send(server, f"X-Forwarded-For: {ADDRESS}") == "127.0.0.1"


@pytest.mark.parametrize("proxies", ["192.0.2.1,127.0.0.0/8", "*"])
def test_networks_of_proxies(proxies: str) -> None:
    """The trusted proxies can be a network, or all."""
    with Gunicorn("--access-logfile=-", PLANTSTORE_TOKENS=TOKEN, FORWARDED_ALLOW_IPS=proxies) as it:
        assert send(it, f"X-Forwarded-For: {ADDRESS}") == ADDRESS


def test_proxy_on_a_unix_socket(tmp_path: Path) -> None:
    """A proxy that uses a Unix socket is always trusted."""
    path = tmp_path / "socket"
    with (
        Gunicorn(f"--bind=unix:{path}", "--access-logfile=-", PLANTSTORE_TOKENS=TOKEN) as server,
        Connection(0, path) as connection,
    ):
        connection.send(post(b"{}", f"X-Forwarded-For: {ADDRESS}"))
        assert logged_address(server, connection.receive()) == ADDRESS


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


def test_ipv4_client_of_an_ipv6_socket() -> None:
    """A client with IPv4 has the same address in the log if the socket of the service is IPv6."""
    with Gunicorn("--bind=[::]:0", "--access-logfile=-", PLANTSTORE_TOKENS=TOKEN) as server:
        port = int(server.wait_for(r"http://\[::\]:(\d+)")[1])
        with Connection(port) as connection:
            connection.send(post(b"{}", f"X-Forwarded-For: {ADDRESS}"))
            assert logged_address(server, connection.receive()) == ADDRESS
        with Connection(port) as connection:
            connection.send(post(b"{}"))
            assert logged_address(server, connection.receive()) == "127.0.0.1"
