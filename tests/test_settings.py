"""Settings from the environment and from the config of create_app."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from plantstore import MemoryStore, SettingsError, create_app
from plantstore.settings import MAX_BODY, Settings
from tests.support.responses import create
from tests.support.sites import ROSE, TOKEN

DIGEST = sha256(b"hashed").hexdigest()


def accepts(token: str, **config: Any) -> bool:
    """Return whether a service with this config accepts a token."""
    client = create_app(config).test_client()
    headers = {"Authorization": f"Bearer {token}"}
    return client.post("/plants", json=ROSE, headers=headers).status_code == 200


def refusal(**config: Any) -> str:
    """Return the message of one line with which a service with this config refuses to start."""
    with pytest.raises(SettingsError) as caught:
        create_app(config)
    message = str(caught.value)
    assert "\n" not in message
    assert "hunter2" not in message
    return message


def test_config_overrides_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The config of create_app overrides the environment, and is in app.config."""
    monkeypatch.setenv("PLANTSTORE_TOKENS", "fromenv")
    assert accepts("fromconfig", PLANTSTORE_TOKENS="fromconfig")
    assert not accepts("fromenv", PLANTSTORE_TOKENS="fromconfig")
    app = create_app({"TESTING": True, "PLANTSTORE_MAX_BODY": 5})
    assert (app.testing, app.config["PLANTSTORE_MAX_BODY"]) == (True, 5)


@pytest.mark.parametrize("by_config", [False, True])
def test_values_in_app_config(monkeypatch: pytest.MonkeyPatch, by_config: bool) -> None:
    """In the standalone service, app.config has the parsed value of each setting, and no secret.

    It does not matter whether the value comes from the environment or from an argument.
    """
    config = {
        "PLANTSTORE_TOKENS": "hunter2",
        "PLANTSTORE_STORE": "postgresql://me:hunter2@localhost:1/plants?sslpassword=hunter2",
        "PLANTSTORE_MAX_BODY": "100",
        "PLANTSTORE_OPERATIONS": "create,list",
        "PLANTSTORE_PROXIES": "2",
        "PLANTSTORE_METRICS": "1",
    }
    if not by_config:
        for name, value in config.items():
            monkeypatch.setenv(name, value)
    app = create_app(config if by_config else {"PREFERRED_URL_SCHEME": "https"})
    assert {name: app.config[name] for name in app.config if "PLANTSTORE" in name} == {
        "PLANTSTORE_TOKENS_FILE": "",
        "PLANTSTORE_STORE": "postgresql://me@localhost:1/plants",
        "PLANTSTORE_MAX_BODY": 100,
        "PLANTSTORE_OPERATIONS": ["create", "list"],
        "PLANTSTORE_PROXIES": 2,
        "PLANTSTORE_METRICS": True,
        "PLANTSTORE_LOG": "text",
    }
    assert app.config["PREFERRED_URL_SCHEME"] == ("http" if by_config else "https")
    again = create_app({**app.config, "PLANTSTORE_TOKENS": "hunter2"})
    assert again.config == app.config


def test_values_of_replaced_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """In app.config, there is no value of a setting that an argument of create_app replaces."""
    monkeypatch.setenv("PLANTSTORE_STORE", "postgresql://me:hunter2@localhost/plants")
    app = create_app({"PLANTSTORE_TOKENS_FILE": "x"}, store=MemoryStore(), verify_token=str.upper)
    assert {"PLANTSTORE_STORE", "PLANTSTORE_TOKENS_FILE"}.isdisjoint(app.config)


@pytest.mark.parametrize("token", ["one", "two", "three", "hashed"])
def test_tokens_are_separated_by_commas_or_white_space(token: str) -> None:
    """Tokens are separated by commas or white space; each is plain text or a digest."""
    assert accepts(token, PLANTSTORE_TOKENS=f" one,two\n, three\tsha256:{DIGEST},")


def test_tokens_in_config_may_be_a_list() -> None:
    """In create_app's config the tokens may be a list, and a token may be a number."""
    assert accepts("two", PLANTSTORE_TOKENS=["one", "two"])
    assert accepts("123", PLANTSTORE_TOKENS=123)


def test_tokens_file(tmp_path: Path) -> None:
    """A line of the tokens file has a token or digest, then optionally the client's name.

    A # starts a comment.
    """
    path = tmp_path / "tokens"
    path.write_text(
        "\ufeffone # the first\n\n# nothing\n two\tFlora of the Garden # here \n"
        f"sha256:{DIGEST}\r\nlast Fauna\u2028nobody\x0cnobody\r\n"
    )
    verify = Settings({"PLANTSTORE_TOKENS_FILE": path}).verify_token()
    clients = [verify("one"), verify("two"), verify("hashed"), verify("nobody")]
    assert clients == ["line-1", "Flora of the Garden", "line-5", None]
    assert verify("last") is not None


def test_tokens_and_tokens_file_are_combined(tmp_path: Path) -> None:
    """Tokens of the variable and of the file are both accepted."""
    path = tmp_path / "tokens"
    path.write_text("infile")
    both = {"PLANTSTORE_TOKENS": "listed", "PLANTSTORE_TOKENS_FILE": str(path)}
    assert accepts("infile", **both)
    assert accepts("listed", **both)


@pytest.mark.parametrize("tokens", [None, False, 0, [], "", " ", ",", " , \n"])
def test_missing_token_is_refused(tokens: Any) -> None:
    """Without a token the service refuses to start, and says what to set."""
    assert "set PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE" in refusal(PLANTSTORE_TOKENS=tokens)


@pytest.mark.parametrize(
    "bad", ["hunter2\xf6", "sha256:hunter2", "hunter2=x", "hunter2:", '"hunter2"']
)
def test_invalid_token_is_refused(tmp_path: Path, bad: str) -> None:
    """An invalid token is refused; the message has its position but not the token."""
    assert refusal(PLANTSTORE_TOKENS=f"valid,{bad}").startswith(
        "PLANTSTORE_TOKENS: token number 2 "
    )
    path = tmp_path / "tokens"
    path.write_text(f"# tokens\nvalid\n{bad} hunter2\n")
    message = refusal(PLANTSTORE_TOKENS_FILE=str(path))
    assert message.startswith("PLANTSTORE_TOKENS_FILE: line 3 ")


def test_unreadable_tokens_file_is_refused(tmp_path: Path) -> None:
    """A tokens file that cannot be read is refused; the message does not contain its path."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, fault in (
        ("hunter2", os.strerror(2)),
        (str(tmp_path), os.strerror(21)),
        (str(binary), "not UTF-8 text"),
        ("hunter2\0", "embedded null"),
        (os.devnull, "not a regular file"),
    ):
        message = refusal(PLANTSTORE_TOKENS_FILE=path)
        assert message.startswith("PLANTSTORE_TOKENS_FILE: ")
        assert fault in message
        assert path not in message


@pytest.mark.parametrize(
    "limit", ["0", "-1", "", " ", "1e6", "1_000", "١", "10 MB", 0, 1.5, True, None]
)
def test_invalid_max_body_is_refused(limit: Any) -> None:
    """A PLANTSTORE_MAX_BODY that is not a whole number of at least 1 is refused by name."""
    message = refusal(PLANTSTORE_TOKENS="t", PLANTSTORE_MAX_BODY=limit)
    assert message.startswith("PLANTSTORE_MAX_BODY: must be ")


@pytest.mark.parametrize("limit", [1, "1", 10**17, "1048576"])
def test_max_body_is_a_number_or_text(limit: Any) -> None:
    """PLANTSTORE_MAX_BODY may be a number or text."""
    settings = Settings({"PLANTSTORE_TOKENS": "t", "PLANTSTORE_MAX_BODY": limit})
    assert settings[MAX_BODY] == int(limit)


@pytest.mark.parametrize("url", ["", "memory", "foo://me:hunter2@host/db", None, "me:hunter2@host"])
def test_invalid_store_url_is_refused(url: str | None) -> None:
    """An invalid store URL, also the empty one, is refused with the name of the setting."""
    message = refusal(PLANTSTORE_TOKENS="t", PLANTSTORE_STORE=url)
    assert message.startswith("PLANTSTORE_STORE: ")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("PLANTSTORE_STORES", "PLANTSTORE_STORE"),
        ("PLANTSTORE_TOKEN", "PLANTSTORE_TOKENS"),
        ("PLANTSTORE_TOKEN_FILE", "PLANTSTORE_TOKENS_FILE"),
        ("PLANTSTORE_MAXBODY", "PLANTSTORE_MAX_BODY"),
        ("PLANTSTORE_store", "PLANTSTORE_STORE"),
        ("PLANTSTORE_", "PLANTSTORE_LOG"),
        ("PLANTSTORE_PORTS", "PLANTSTORE_PROXIES"),
    ],
)
def test_unknown_setting_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, nearest: str
) -> None:
    """A name that begins with PLANTSTORE_ and is no setting is refused; the message suggests one.

    This applies to the environment and to the config of create_app.
    """
    expected = f"{name} is not a setting. Did you mean {nearest}?"
    assert refusal(PLANTSTORE_TOKENS="t", **{name: "hunter2"}) == expected
    monkeypatch.setenv(name, "hunter2")
    assert refusal(PLANTSTORE_TOKENS="t") == expected


@pytest.mark.parametrize(
    "name",
    [
        *("PLANTSTORE_PORT", "PLANTSTORE_PORT_8000_TCP", "PLANTSTORE_PORT_8000_TCP_PROTO"),
        *("PLANTSTORE_PORT_8000_TCP_PORT", "PLANTSTORE_PORT_8000_TCP_ADDR"),
        *("PLANTSTORE_SERVICE_HOST", "PLANTSTORE_SERVICE_PORT", "PLANTSTORE_SERVICE_PORT_HTTP"),
        *("PLANTSTORE_DB_SERVICE_HOST", "PLANTSTORE_DB_PORT_5432_TCP", "PLANTSTORE"),
        *("plantstore_store",),
    ],
)
def test_variables_of_kubernetes_are_allowed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The variables that Kubernetes sets for services named plantstore are no settings."""
    monkeypatch.setenv(name, "tcp://10.0.0.1:8000")
    assert accepts("t", PLANTSTORE_TOKENS="t")


def test_settings_repr_shows_no_secret() -> None:
    """The repr of Settings contains neither a token nor the store's URL."""
    source = {"PLANTSTORE_TOKENS": "hunter2", "PLANTSTORE_STORE": "foo://me:hunter2@host/db"}
    assert "hunter2" not in repr(Settings(source))


def test_verify_token_argument_replaces_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a verify_token of create_app, no token setting is read or required."""
    monkeypatch.setenv("PLANTSTORE_TOKENS_FILE", "missing")
    monkeypatch.setenv("PLANTSTORE_TOKENS", '"nonsense"')
    client = create_app(verify_token={TOKEN: "Flora"}.get).test_client()
    assert create(client, ROSE).status_code == 200


def test_other_settings_are_read_beside_arguments() -> None:
    """A setting without an argument is read and checked as always."""
    with pytest.raises(SettingsError, match="^PLANTSTORE_MAX_BODY: must be "):
        create_app({"PLANTSTORE_MAX_BODY": 0}, store=MemoryStore(), verify_token=str.upper)
    with pytest.raises(SettingsError, match="^no token is configured: "):
        create_app(store=MemoryStore())
    with pytest.raises(SettingsError, match="^PLANTSTORE_STORE: "):
        create_app({"PLANTSTORE_STORE": "nonsense"}, verify_token=str.upper)
