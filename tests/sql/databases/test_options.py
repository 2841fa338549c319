"""The options in the URL of a database: checked when the store is opened."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from urllib.parse import unquote

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pymysql import connections  # type: ignore[import-untyped]
from sqlalchemy import Engine, create_engine, text

from plantstore import Plant, SettingsError, StoreUnavailable
from plantstore.settings import Settings
from tests.support.commands import invoke
from tests.support.databases import OpenPlace, Place, mariadb, only, postgresql
from tests.support.serving import LIMIT
from tests.support.sites import ROSE_PLANT
from tests.support.sql import ask, open_sql
from tests.support.stores import refusal

# The query of the cipher of a connection to MariaDB.
CIPHER = (
    "SELECT variable_value FROM information_schema.session_status"
    " WHERE variable_name = 'Ssl_cipher'"
)
POSTGRESQL = "postgresql://me:hunter2@127.0.0.1/db?"
MYSQL = "mysql://me:hunter2@127.0.0.1/db?"
SQLITE = "sqlite:///plants.db?"
# Options that have no effect, with the word that the message must contain.
INVALID = [
    (POSTGRESQL + "nonsense=1", "'nonsense'"),
    (POSTGRESQL + "nonsense=1,2", "'nonsense'"),
    (POSTGRESQL + "line%0Abreak=1", r"'line\nbreak'"),
    (POSTGRESQL + "autocommit=1", "'autocommit'"),
    (POSTGRESQL + "isolation_level=SERIALIZABLE", "'isolation_level'"),
    (POSTGRESQL + "connect_timeout=x", "connect_timeout"),
    (POSTGRESQL + f"connect_timeout={'9' * 5000}", "connect_timeout"),
    (POSTGRESQL + "keepalives_idle=x", "keepalives_idle"),
    (POSTGRESQL + "connections=1", "connections"),
    (POSTGRESQL + "prepare_threshold=1.5", "prepare_threshold"),
    (POSTGRESQL + "sslmode=", "'sslmode'"),
    (POSTGRESQL + "sslmode", "'sslmode'"),
    (POSTGRESQL + "sslmode=prefer&sslmode=require", "sslmode"),
    (POSTGRESQL + "port=x", "port"),
    (POSTGRESQL + "host=a:x&host=b", "port"),
    (POSTGRESQL + "host=a,b&port=1,2,3", "port"),
    (MYSQL + "host=a", "host"),
    (MYSQL + "nonsense=1", "'nonsense'"),
    (MYSQL + "isolation_level=SERIALIZABLE", "'isolation_level'"),
    (MYSQL + "autocommit=1", "'autocommit'"),
    (MYSQL + "charset=latin1", "charset"),
    (MYSQL + "charset=", "'charset'"),
    (MYSQL + "connect_timeout=x", "an option of the URL"),
    (MYSQL + "connections=1001", "connections"),
    (MYSQL + "read_timeout=1&read_timeout=2", "read_timeout"),
    (MYSQL + "ssl_disabled=x", "ssl_disabled"),
    (MYSQL + "ssl_check_hostname=x", "an option of the URL"),
    (MYSQL + "read_default_file=missing", "read_default_file"),
    (SQLITE + "nonsense=1", "'nonsense'"),
    (SQLITE + "uri=true", "'uri'"),
    (SQLITE + "isolation_level=IMMEDIATE", "'isolation_level'"),
    (SQLITE + "timeout=soon", "timeout"),
    (SQLITE + "timeout=-1", "timeout"),
    (SQLITE + "timeout=nan", "timeout"),
    (SQLITE + "timeout=inf", "timeout"),
    (SQLITE + "timeout=3600.5", "timeout"),
    (SQLITE + "timeout=1&timeout=1", "timeout"),
    (SQLITE + "timeout=", "'timeout'"),
    (SQLITE + "journal_mode=off", "journal_mode"),
    (SQLITE + "journal_mode=WAL", "journal_mode"),
]


@pytest.mark.parametrize(("url", "name"), INVALID, ids=lambda it: it[:60])
def test_invalid_option_is_refused_by_name(url: str, name: str) -> None:
    """An unknown or invalid option is refused when the store is opened, and the message names it.

    The service does not start, and the command has exit code 2. No message shows the URL.
    """
    message = refusal(url)
    assert name in message
    assert "127.0.0.1/db" not in message
    with pytest.raises(SettingsError, match="^PLANTSTORE_STORE: ") as caught:
        Settings({"PLANTSTORE_STORE": url}).open_store()
    assert str(caught.value).endswith(message)
    result = invoke("count", "--store", url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "hunter2" not in result.stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("sslmode=hunter2", 'invalid sslmode value: "***"'),
        ("sslmode=a%0Ahunter2&target_session_attrs=read-write", 'invalid sslmode value: "***"'),
        ('sslmode=a"hunter2', 'invalid sslmode value: "***"'),
        ("password=hunter2&sslmode=bogus", 'invalid sslmode value: "***"'),
        ("target_session_attrs=hunter2", 'invalid target_session_attrs value: "***"'),
        (
            "ssl_min_protocol_version=hunter2",
            'invalid "ssl_min_protocol_version" value: "***"',
        ),
        ("port=99999", 'invalid port number: "***"'),
        ("hostaddr=127.0.0.1,127.0.0.2", "could not match 1 host names with 2 hostaddr values"),
    ],
)
def test_wrong_value_for_postgresql_is_masked(options: str, problem: str) -> None:
    """`plantstore check` says which option of PostgreSQL has a wrong value, and masks the value."""
    url = POSTGRESQL + options
    with open_sql(url) as store, pytest.raises(StoreUnavailable) as caught:
        store.ping()
    assert str(caught.value).endswith(problem)
    result = invoke("check", env={"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": url})
    assert result.exit_code == 1
    assert problem in result.stdout
    assert "hunter2" not in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("connect_timeout=0", "connect_timeout should be"),
        ("read_timeout=-1&connect_timeout=2", "Connection refused"),
        ("ssl_ca=hunter2", "No such file"),
        ("ssl_cert=hunter2&ssl_key=hunter2", "No such file"),
        ("ssl_cipher=hunter2", "No cipher can be selected"),
        (f"ssl_ca={__file__}", "option of the URL has a wrong value: "),
        ("read_default_file={file}", "File contains no section headers"),
    ],
)
def test_wrong_value_for_mariadb_is_reported(tmp_path: Path, options: str, problem: str) -> None:
    """`plantstore check` reports an option that the driver of MariaDB refuses, without its value.

    No line of a file is shown either.
    """
    file = tmp_path / "my.cnf"
    file.write_text("password = hunter2\n")
    url = f"mysql://me:hunter2@127.0.0.1:1/db?{options.format(file=file)}"
    with open_sql(url) as store, pytest.raises(StoreUnavailable, match=problem):
        store.ping()
    result = invoke("check", env={"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": url})
    assert result.exit_code == 1
    assert problem in result.stdout
    assert "hunter2" not in result.stdout + result.stderr


def test_missing_server_is_not_masked(tmp_path: Path) -> None:
    """The message for a server that cannot be reached names its address and the reason."""
    with (
        open_sql(f"postgresql:///db?host={tmp_path}") as store,
        pytest.raises(StoreUnavailable, match=f'socket "{tmp_path}/.*No such file or directory'),
    ):
        store.ping()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://data/plants.db",
        "sqlite://me:hunter2@host/plants.db",
        "sqlite:///plants%00.db",
        "mysql://me:hunter2@127.0.0.1:99999/db",
        "mysql://me:hunter2@127.0.0.1:0/db",
        "mysql://me:hunter2%00@127.0.0.1/db",
        POSTGRESQL + "application_name=a%00b",
    ],
)
def test_invalid_address_is_refused(url: str) -> None:
    """A URL whose address or text cannot be used is refused when the store is opened."""
    assert "sqlite:///plants.db" in refusal(url)


@pytest.mark.parametrize(
    "address",
    [
        "me:hunter2@b/c@host/db",
        "me:hunter2@host/db@2",
        "me:a@hunter2?b=c@host/db",
        "me:a@hunter2:5/x@host/db",
        "me:12/hunter2@host/db",
        "me:12?hunter2@host/db",
        "me/you:hunter2@host/db",
        "me?you:hunter2@host/db",
        "me:hunter2@host/db?application_name=a@b",
        "host:5432/db?password=a@hunter2",
        "host/db?password=a@hunter2",
        "[::1]:5432/db?password=a@hunter2",
        "me:hunter2@hö..st/db",
        f"me:hunter2@{'x' * 70}/db",
        "me:hunter2\udcff@host/db",
    ],
)
@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_ambiguous_address_is_refused(scheme: str, address: str) -> None:
    """A URL of which a part of the password may be another part is refused.

    The message shows no part of the password, and says how to write @ and /.
    """
    message = refusal(f"{scheme}://{address}")
    assert "@ as %40 and / as %2F" in message
    assert address not in message


@pytest.mark.parametrize(
    "options",
    [
        "password=a&hunter2",
        "password=a&hunter2=b",
        "sslpassword=a&hunter2=b",
        "password=&hunter2=b",
    ],
)
def test_password_in_the_options_is_not_shown(options: str) -> None:
    """If a URL has a password among its options, what may be a part of it is not shown."""
    for url in (POSTGRESQL, MYSQL):
        assert refusal(url + options).endswith("in a password write & as %26")


# Passwords of characters that have a meaning in a URL, and of letters that no message has.
PASSWORDS = st.text("@/#?:%[]\\ '\"&=+QZXJqzxj12é", min_size=4, max_size=20)


@given(PASSWORDS, st.sampled_from(["postgresql", "mysql"]), st.sampled_from(["", "?bad=1"]))
def test_no_message_shows_a_part_of_a_password(password: str, scheme: str, options: str) -> None:
    """No message shows four characters of a password, however its characters are written.

    If the URL is accepted, the password is the whole password.
    """
    parts = {text[i : i + 4] for text in (password, unquote(password)) for i in range(len(text))}
    url = f"{scheme}://me:{password}@127.0.0.1:1/db{options}"
    try:
        with open_sql(url) as store:
            used = store._url  # noqa: SLF001
            assert (used.host, used.password) == ("127.0.0.1", unquote(password))
            store.ping()
    except (ValueError, StoreUnavailable) as error:
        message = str(error)
    assert [part for part in parts if len(part) == 4 and part in message] == []


@pytest.mark.parametrize("start", [postgresql, mariadb])
def test_wrong_password(start: OpenPlace) -> None:
    """A wrong password is StoreUnavailable, and the message does not show it.

    The right one may have any characters.
    """
    right, wrong = "é🌹@/ %:?#[]", "hünter2@/ %:?#[]"
    with start() as place, closing_engine(place) as engine:
        create_user(place, engine, right)
        for password in (wrong, right):
            url = engine.url.set(username="shy", password=password)
            with open_sql(url.render_as_string(hide_password=False)) as store:
                if password == right:
                    store.ping()
                    continue
                with pytest.raises(
                    StoreUnavailable, match=r"(?i)password.*shy|shy.*password"
                ) as it:
                    store.ping()
                assert "nter2" not in str(it.value)


@contextmanager
def closing_engine(place: Place) -> Iterator[Engine]:
    """Provide an engine for a place, and dispose of it."""
    engine = create_engine(place.site_url)
    yield engine
    engine.dispose()


def create_user(place: Place, engine: Engine, password: str) -> None:
    """Create the user shy, who needs the password."""
    create = {
        "postgresql": f"CREATE ROLE shy LOGIN PASSWORD '{password}'",
        "mysql": f"CREATE USER shy@'%%' IDENTIFIED BY '{password}'",
    }[engine.dialect.name]
    with engine.begin() as connection:
        connection.exec_driver_sql(create.replace("%", "%%").replace("%%%%", "%%"))
        if engine.dialect.name == "mysql":
            connection.exec_driver_sql("GRANT ALL ON plants.* TO shy@'%%'")
            return
        rules = Path(place.server.options["cwd"]) / "data" / "pg_hba.conf"
        rules.write_text(f"host all shy all scram-sha-256\n{rules.read_text()}")
        connection.exec_driver_sql("SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    "password", ["a?b", "a/b", "a:b", "a#b", "a[b", "a]b", "a b", "a%b", "a\\b", "a?b=&c", "a&b"]
)
def test_password_is_not_taken_for_options(password: str) -> None:
    """A password may contain the characters that separate options."""
    open_sql(f"postgresql://me:{password}@127.0.0.1/db").close()
    open_sql(f"mysql://me:{password}@127.0.0.1/db?charset=utf8mb4&").close()


def test_hosts_of_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service of PGSERVICE may have several hosts."""
    (tmp_path / "services").write_text("[plants]\nhost=a,b\nport=1,2\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv("PGSERVICE", "plants")
    open_sql("postgresql:///db?target_session_attrs=read-write").close()


def use(url: str) -> None:
    """Add more plants than psycopg executes before it prepares a statement, and read them."""
    with open_sql(url) as store:
        plants = [Plant(id, "Rose") for id in range(20)]
        for plant in plants:
            store.add(plant)
        assert list(store) == plants


@only(postgresql)
@pytest.mark.parametrize(
    "options",
    [
        "prepare_threshold=0",
        "connect_timeout=2&keepalives=1&keepalives_idle=10&tcp_user_timeout=3000",
        "sslmode=prefer&gssencmode=disable&channel_binding=prefer",
        "target_session_attrs=read-write",
        "client_encoding=utf8&passfile=/missing",
        "hostaddr=127.0.0.1",
    ],
)
def test_postgresql_options(place: Place, options: str) -> None:
    """Valid options of PostgreSQL reach psycopg with their types."""
    use(f"{place.url}?{options}")


@only(postgresql)
@pytest.mark.parametrize(
    "options",
    [
        "host={folder}&port={port}",
        "host={folder}:{port}&host=127.0.0.1:{port}",
        "host=127.0.0.1,{folder}&port=1,{port}",
    ],
)
def test_postgresql_hosts(place: Place, options: str) -> None:
    """The options may contain the folder of a socket, and several hosts."""
    folder, port = place.server.options["cwd"], place.url.split(":")[-1].split("/")[0]
    use(f"postgresql://plants@/postgres?{options.format(folder=folder, port=port)}")


@pytest.fixture
def schema(engine: Engine) -> Iterator[str]:
    """Return the name of a new schema."""
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA garden"))
    yield "garden"
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA garden CASCADE"))


@only(postgresql)
@pytest.mark.parametrize("path", ["garden", "garden,public"])
def test_postgresql_session_options(place: Place, engine: Engine, schema: str, path: str) -> None:
    """The options of the session apply beside the timeout of the store's statements."""
    name = f"the shed in {path}"  # A session of another test may not have ended yet.
    with open_sql(f"{place.url}?application_name={name}&options=-c search_path={path}") as store:
        store.add(ROSE_PLANT)
        with engine.connect() as connection:
            number = f"SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = '{name}'"
            assert connection.execute(text(number)).scalar() == 1
            assert connection.execute(text(f"SELECT name FROM {schema}.plants")).scalar() == "Rose"
        assert ask(store, "SHOW statement_timeout") == "3500ms"
        assert ask(store, "SHOW lock_timeout") == "500ms"


@only(mariadb)
@pytest.mark.parametrize(
    "options",
    [
        "charset=utf8mb4&program_name=shed&bind_address=127.0.0.1",
        "connect_timeout=2&read_timeout=2&write_timeout=2",
    ],
)
def test_mariadb_options(place: Place, options: str) -> None:
    """Valid options of MariaDB reach PyMySQL."""
    use(f"{place.url}?{options}")


@only(mariadb)
def test_mariadb_socket(place: Place, tmp_path: Path) -> None:
    """The server may be given by its socket, also in an option file of MariaDB."""
    socket = f"{place.server.options['cwd']}/socket"
    (tmp_path / "my.cnf").write_text(f"[client]\nsocket = {socket}\n")
    use(f"mysql://root@/plants?unix_socket={socket}")
    with open_sql(f"mysql://root@/plants?read_default_file={tmp_path}/my.cnf") as store:
        assert len(store) == 20


@only(mariadb)
def test_response_timeout_of_the_url(place: Place) -> None:
    """The read_timeout of the URL limits the time to wait for a response."""
    with (
        open_sql(f"{place.url}?read_timeout=1") as store,
        pytest.raises(StoreUnavailable, match="timed out"),
    ):
        ask(store, "SELECT SLEEP(2)")


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
    """With ssl_ca, the store uses only a server that it can verify, also with its own ssl_key.

    With ssl_disabled=true, it does not use TLS.
    """
    with mariadb() as place:
        folder = Path(place.server.options["cwd"])
        (valid, key), (client, client_key) = certificate(folder, "a"), certificate(folder, "b")
        own = f"ssl_cert={client}&ssl_key={client_key}"
        url = f"{place.url}?ssl_ca="
        with place.server.stopped():
            tls = [f"--ssl-cert={valid}", f"--ssl-key={key}", f"--ssl-ca={client}"]
            place.server.command += tls
        for options in (f"{client}", f"{client}&{own}"):
            unverified = pytest.raises(StoreUnavailable, match="certificate verify failed")
            with open_sql(url + options) as store, unverified:
                store.ping()
        for options in (f"{valid}", f"{valid}&{own}"):
            use_tls(url + options)
        # Older drivers do not have this option, and say so.
        if "ssl_disabled" in signature(connections.Connection.__init__).parameters:
            use_tls(f"{url}{valid}&ssl_disabled=false")
            use_tls(f"{url}{valid}&ssl_disabled=true", disabled=True)


def use_tls(url: str, *, disabled: bool = False) -> None:
    """Check that a store uses an encrypted connection, or none that is encrypted."""
    with open_sql(url) as store:
        assert (ask(store, CIPHER) == "") == disabled
