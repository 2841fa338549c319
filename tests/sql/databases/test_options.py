"""The URL of a database and its options: checked when the store is opened."""

import subprocess
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pymysql import connections  # type: ignore[import-untyped]
from sqlalchemy import create_engine, make_url

from plantstore import Plant, StoreUnavailable
from tests.support.commands import invoke
from tests.support.databases import SERVERS, OpenPlace, Place, mariadb, on, only, postgresql
from tests.support.serving import LIMIT
from tests.support.sql import ask, changed, execute, listening, open_sql
from tests.support.stores import refusal
from tests.support.waiting import wait_until

POSTGRESQL = "postgresql://me:hunter2@127.0.0.1/db?"
MYSQL = "mysql://me:hunter2@127.0.0.1:1/db?"
# Options that have no effect. The message names the option at their begin.
INVALID = {
    POSTGRESQL: f"nonsense=1 nonsense=1,2 autocommit=1 isolation_level=SERIALIZABLE port=x"
    f" connect_timeout=x connect_timeout={'9' * 5000} keepalives_idle=x connections=1"
    " prepare_threshold=1.5 sslmode= sslmode sslmode=prefer&sslmode=require host=a:x&host=b"
    " host=a,b&port=1,2,3 service=plants",
    MYSQL: "nonsense=1 autocommit=1 isolation_level=SERIALIZABLE host=a charset=latin1 charset="
    " connections=1001 read_timeout=1&read_timeout=2 ssl_disabled=x read_default_file=missing",
    "sqlite:///plants.db?": "nonsense=1 uri=true isolation_level=IMMEDIATE timeout=soon timeout=-1"
    " timeout=nan timeout=inf timeout=3600.5 timeout=1&timeout=1 timeout= journal_mode=off"
    " journal_mode=WAL mode=wal",
}
NAMED = [
    *[(url + it, it.split("=")[0]) for url, options in INVALID.items() for it in options.split()],
    (POSTGRESQL + "line%0Abreak=1", r"'line\nbreak'"),
    (POSTGRESQL + "sslmode=no-verify", "sslmode of the URL must be disable or allow or prefer or"),
    (POSTGRESQL + "sslmode=hunter2", "or require or verify-ca or verify-full"),
    (MYSQL + "connect_timeout=x", "an option of the URL"),
    (MYSQL + "ssl_check_hostname=x", "an option of the URL"),
]


@pytest.mark.parametrize(("url", "name"), NAMED, ids=lambda it: it[:60])
def test_invalid_option_is_refused_by_name(url: str, name: str) -> None:
    """An unknown or invalid option is refused by name before anything starts, without the URL."""
    message = refusal(url)
    assert name in message
    assert "127.0.0.1" not in message


# Wrong values that only the driver finds, by what the message has.
WRONG = {
    'invalid target_session_attrs value: "***"': [
        POSTGRESQL + "target_session_attrs=hunter2",
        POSTGRESQL + "target_session_attrs=a%0Ahunter2",
        POSTGRESQL + 'target_session_attrs=a"hunter2',
    ],
    'invalid "ssl_min_protocol_version" value: "***"': [
        POSTGRESQL + "ssl_min_protocol_version=hunter2"
    ],
    'invalid port number: "***"': [POSTGRESQL + "port=99999"],
    '"/missing/.s.PGSQL.5432" failed: No such file': ["postgresql:///db?host=/missing"],
    "could not match 1 host names": [POSTGRESQL + "hostaddr=127.0.0.1,127.0.0.2"],
    "connect_timeout should be": [MYSQL + "connect_timeout=0"],
    "Connection refused": [MYSQL + "read_timeout=-1&connect_timeout=2"],
    "No such file": [MYSQL + "ssl_ca=hunter2", MYSQL + "ssl_cert=hunter2&ssl_key=hunter2"],
    "No cipher can be selected": [MYSQL + "ssl_cipher=hunter2"],
    "no certificate or crl found": [MYSQL + f"ssl_ca={__file__}"],
    "File contains no section headers": [MYSQL + "read_default_file=my.cnf"],
}


@pytest.mark.parametrize(
    ("url", "problem"), [(url, problem) for problem, urls in WRONG.items() for url in urls]
)
def test_wrong_value_is_reported_and_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, problem: str
) -> None:
    """`plantstore check` reports a wrong value of an option, without it or a line of a file."""
    monkeypatch.chdir(tmp_path)
    Path("my.cnf").write_text("password = hunter2\n")
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": url}

    def is_reported() -> bool:
        result = invoke("check", env=environment)
        assert result.exit_code == 1
        assert "hunter2" not in result.stdout + result.stderr
        return problem in result.stdout

    # On a busy machine, the driver may not be loaded before the first check must end.
    wait_until(is_reported)


# Addresses of which a part of the password may be another part, or that name several servers.
ADDRESSES = (
    "me:hunter2@b/c@host/db me:hunter2@host/db@2 me:a@hunter2?b=c@host/db me:a@hunter2:5/x@host/db"
    " me:12/hunter2@host/db me:12?hunter2@host/db me/you:hunter2@host/db me?you:hunter2@host/db"
    " me:hunter2@host/db?application_name=a@b host:5432/db?password=a@hunter2 host/db?password=a@x"
    " [::1]:5432/db?password=a@hunter2 me:hunter2@hö..st/db me:hunter2\udcff@host/db"
    " me:hunter2@a:1,b:2/db a,b/db me:hunter2@[::1]:1,b/db?sslmode=prefer me@a,,b ,"
    " me:hunter2@127.0.0.1:99999/db me:hunter2@127.0.0.1:0/db me:hunter2%00@127.0.0.1/db"
    f" me:hunter2@host:port/db me:se@hunter2@host/db me:hunter2@host me:hunter2@{'x' * 70}/db"
)
# URLs that no database has.
URLS = (
    "sqlite:// sqlite:/// sqlite:///:memory: sqlite:///plants%00.db sqlite://data/plants.db"
    " sqlite://me:hunter2@host/plants.db postgresql+asyncpg://me:hunter2@host/db"
    f" mysql+nothing://me:hunter2@host/db {POSTGRESQL}application_name=a%00b"
)


@pytest.mark.parametrize(
    "url",
    [*URLS.split(), *(s + it for s in ("postgresql://", "mysql://") for it in ADDRESSES.split())],
)
def test_invalid_url_is_refused(url: str) -> None:
    """A URL that is invalid, or may have a part of the password elsewhere, is not shown."""
    assert "sqlite://" in refusal(url)


@pytest.mark.parametrize(
    "options", ["password=a&hunter2", "password=&hunter2=b", "sslpassword=a&hunter2=b"]
)
def test_password_in_the_options_is_not_shown(options: str) -> None:
    """If a URL has a password among its options, what may be a part of it is not shown."""
    for url in (POSTGRESQL, MYSQL):
        assert refusal(url + options).endswith("in a password write & as %26")


# Passwords of characters that have a meaning in a URL, and of letters that no message has.
PASSWORDS = st.text("@/#?:%[]\\ '\"&=+QZXJqzxj12é", min_size=4, max_size=20)


@given(PASSWORDS, st.sampled_from(["postgresql", "mysql"]), st.sampled_from(["", "?bad=1"]))
def test_no_message_shows_a_part_of_a_password(password: str, scheme: str, options: str) -> None:
    """No message shows four characters of a password; an accepted URL has the whole password."""
    parts = {text[i : i + 4] for text in (password, unquote(password)) for i in range(len(text))}
    url = f"{scheme}://me:{password}@127.0.0.1:1/db{options}"
    used: list[dict[str, Any]] = []
    note = listening("do_connect", lambda *it: used.append(it[3]))
    try:
        with note, open_sql(url) as store:
            store.ping()
    except (ValueError, StoreUnavailable) as error:
        message = str(error)
    for arguments in used:
        assert arguments["host"] == "127.0.0.1"
        assert arguments["password"] in {unquote(password), unquote(password).encode()}
    assert [part for part in parts if len(part) == 4 and part in message] == []


@pytest.mark.parametrize("start", SERVERS)
def test_wrong_password(start: OpenPlace) -> None:
    """A wrong password is not in the message. The right one may have any characters."""
    right, wrong = "é🌹@/ %:?#[]", "hünter2@/ %:?#[]"
    with start() as place:
        engine, quoted = create_engine(place.site_url), right.replace("%", "%%")
        if engine.dialect.name == "mysql":
            create = f"CREATE USER shy IDENTIFIED BY '{quoted}'"
            execute(engine, create, "GRANT ALL ON plants.* TO shy")
        else:
            rules = Path(place.server.options["cwd"]) / "data" / "pg_hba.conf"
            rules.write_text(f"host all shy all scram-sha-256\n{rules.read_text()}")
            execute(engine, f"CREATE ROLE shy LOGIN PASSWORD '{quoted}'", "SELECT pg_reload_conf()")
        engine.dispose()
        with open_sql(changed(place.url, username="shy", password=wrong)) as store:
            refused = r"(?i)password.*shy|shy.*password"
            with pytest.raises(StoreUnavailable, match=refused) as caught:
                store.ping()
            assert "nter2" not in str(caught.value)
        with open_sql(changed(place.url, username="shy", password=right)) as store:
            store.ping()


# The URLs of a server: options reach the driver with their types; a socket may be the address.
ACCEPTED = {
    postgresql: [
        "{url}?prepare_threshold=0",
        "{url}?connect_timeout=2&keepalives=1&keepalives_idle=10&tcp_user_timeout=3000",
        "{url}?sslmode=prefer&gssencmode=disable&channel_binding=prefer",
        "{url}?target_session_attrs=read-write&hostaddr=127.0.0.1",
        "{url}?client_encoding=utf8&passfile=/missing",
        "postgresql://plants@/postgres?host={folder}&port={port}",
        "postgresql://plants@/postgres?host=127.0.0.1,{folder}&port=1,{port}",
        "postgresql://plants@{quoted}:{port}/postgres",  # As with psql.
    ],
    mariadb: [
        "{url}?charset=utf8mb4&program_name=shed&bind_address=127.0.0.1",
        "{url}?connect_timeout=2&read_timeout=2&write_timeout=2",
        "mysql://root@/plants?unix_socket={folder}/socket",
        "mysql://root@/plants?read_default_file={file}",
    ],
}


@on("url", [(place, url) for place, urls in ACCEPTED.items() for url in urls])
def test_options_and_addresses_of_a_server(place: Place, tmp_path: Path, url: str) -> None:
    """A store with any of these URLs works, also when the driver prepares its statements."""
    folder, file = place.server.options["cwd"], tmp_path / "my.cnf"
    file.write_text(f"[client]\nsocket = {folder}/socket\n")
    port, quoted = make_url(place.url).port, quote(folder, safe="")
    plants = [Plant(id, "Rose") for id in range(20)]
    with open_sql(
        url.format(url=place.url, folder=folder, file=file, port=port, quoted=quoted)
    ) as store:
        for plant in plants:
            store.add(plant)
        assert list(store) == plants


@only(mariadb)
def test_response_timeout_of_the_url(place: Place) -> None:
    """The read_timeout of the URL limits the time to wait for a response."""
    late = pytest.raises(StoreUnavailable, match="timed out")
    with open_sql(f"{place.url}?read_timeout=1") as store, late:
        ask("SELECT SLEEP(2)", store.ping)


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Create a certificate for 127.0.0.1 and its key, which any user may read."""
    files = folder / f"{name}.pem", folder / f"{name}.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    command += f" -subj /CN={name} -addext subjectAltName=IP:127.0.0.1"
    command += f" -out {files[0]} -keyout {files[1]}"
    subprocess.run(command.split(), check=True, capture_output=True, timeout=LIMIT)
    files[1].chmod(0o644)
    return files


@pytest.mark.database
def test_mariadb_certificate_is_verified() -> None:
    """With ssl_ca, only a server that can be verified is used, unless ssl_disabled=true."""
    with mariadb() as place:
        folder = Path(place.server.options["cwd"])
        (valid, key), (client, client_key) = certificate(folder, "a"), certificate(folder, "b")
        own, url = f"ssl_cert={client}&ssl_key={client_key}", f"{place.url}?ssl_ca="
        with place.server.stopped():
            tls = [f"--ssl-cert={valid}", f"--ssl-key={key}", f"--ssl-ca={client}"]
            place.server.command += tls
        for options in (f"{client}", f"{client}&{own}"):
            unverified = pytest.raises(StoreUnavailable, match="certificate verify failed")
            with open_sql(url + options) as store, unverified:
                store.ping()
        assert uses_tls(f"{url}{valid}")
        assert uses_tls(f"{url}{valid}&{own}")
        # Older drivers do not have this option, and say so.
        if "ssl_disabled" in signature(connections.Connection.__init__).parameters:
            assert uses_tls(f"{url}{valid}&ssl_disabled=false")
            assert not uses_tls(f"{url}{valid}&ssl_disabled=true")


def uses_tls(url: str) -> bool:
    """Return whether a store uses an encrypted connection."""
    with open_sql(url) as store:
        is_mariadb = "MariaDB" in ask("SELECT @@version", store.ping)
        schema = "information_schema" if is_mariadb else "performance_schema"
        status = f"{schema}.session_status WHERE variable_name = 'Ssl_cipher'"
        return bool(ask(f"SELECT variable_value FROM {status}", store.ping))
