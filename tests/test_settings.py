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


@pytest.mark.parametrize("by_config", [False, True])
def test_values_in_app_config(monkeypatch: pytest.MonkeyPatch, by_config: bool) -> None:
    """In the standalone service, app.config has the parsed value of each setting, and no secret.

    The value comes from the environment, or from the config of create_app, which overrides it.
    """
    config = {
        "PLANTSTORE_TOKENS": "hunter2",
        "PLANTSTORE_STORE": "postgresql://me:hunter2@localhost:1/plants?sslpassword=hunter2",
        "PLANTSTORE_MAX_BODY": "100",
        "PLANTSTORE_OPERATIONS": "create,list",
        "PLANTSTORE_PROXIES": "2",
        "PLANTSTORE_METRICS": "1",
    }
    for name, value in config.items():
        monkeypatch.setenv(name, "overridden" if by_config else value)
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
    assert "hunter2" not in repr(Settings(config))
    assert app.config["PREFERRED_URL_SCHEME"] == ("http" if by_config else "https")
    assert create_app({**app.config, "PLANTSTORE_TOKENS": "hunter2"}).config == app.config


@pytest.mark.parametrize("name", ["STORE", "TOKENS_FILE", "TOKENS"])
def test_arguments_replace_settings(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A setting that an argument of create_app replaces is neither read nor in app.config."""
    monkeypatch.setenv(f"PLANTSTORE_{name}", '"hunter2"')
    app = create_app(store=MemoryStore(), verify_token={TOKEN: "Flora"}.get)
    assert {"PLANTSTORE_STORE", "PLANTSTORE_TOKENS_FILE"}.isdisjoint(app.config)
    assert create(app.test_client(), ROSE).status_code == 200


def test_other_settings_are_read_beside_arguments() -> None:
    """A setting without an argument is read and checked as always."""
    with pytest.raises(SettingsError, match="^PLANTSTORE_MAX_BODY: must be "):
        create_app({"PLANTSTORE_MAX_BODY": 0}, store=MemoryStore(), verify_token=str.upper)
    with pytest.raises(SettingsError, match="^no token is configured: "):
        create_app(store=MemoryStore())
    with pytest.raises(SettingsError, match="^PLANTSTORE_STORE: "):
        create_app({"PLANTSTORE_STORE": "nonsense"}, verify_token=str.upper)


@pytest.mark.parametrize(
    ("token", "tokens"),
    [
        *((token, f" one,two\n, three\tsha256:{DIGEST},") for token in ("one", "three", "hashed")),
        *(("two", ["one", "two"]), ("123", 123)),
    ],
)
def test_tokens_are_separated_by_commas_or_white_space(
    tmp_path: Path, token: str, tokens: Any
) -> None:
    """Tokens are separated by commas or white space, or a list; those of the file are added."""
    path = tmp_path / "tokens"
    path.write_text("infile")
    both = {"PLANTSTORE_TOKENS": tokens, "PLANTSTORE_TOKENS_FILE": path}
    assert [accepts(sent, **both) for sent in (token, "infile", "other")] == [True, True, False]


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


@pytest.mark.parametrize(
    "bad", ["hunter2\xf6", "sha256:hunter2", "hunter2=x", "hunter2:", '"hunter2"']
)
def test_invalid_token_is_refused(tmp_path: Path, bad: str) -> None:
    """An invalid token is refused; the message has its position but not the token."""
    message = refusal(PLANTSTORE_TOKENS=f"valid,{bad}")
    assert message.startswith("PLANTSTORE_TOKENS: token number 2 ")
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


# The beginning of the message about each setting, and wrong values.
WRONG: dict[str, tuple[str, list[Any]]] = {
    "TOKENS": (
        "no token is configured: set PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE",
        [None, False, 0, [], "", " ", ",", " , \n"],
    ),
    "MAX_BODY": (
        "PLANTSTORE_MAX_BODY: must be a whole number of bytes, at least 1",
        ["0", "-1", "", " ", "1e6", "1_000", "١", "10 MB", 0, 1.5, True, None],
    ),
    "STORE": (
        "PLANTSTORE_STORE: ",
        ["", "memory", "foo://me:hunter2@host/db", None, "me:hunter2@host"],
    ),
    "OPERATIONS": (
        "PLANTSTORE_OPERATIONS: must have one or more of create, read, list, delete, and nothing",
        ["", " , ", "update", "create,Read", "create;read", [], None, 1],
    ),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in WRONG for value in WRONG[name][1]]
)
def test_wrong_value_is_refused(name: str, value: Any) -> None:
    """With a wrong value of a setting, the service refuses to start, and says what is wrong."""
    message = refusal(**{"PLANTSTORE_TOKENS": "t", f"PLANTSTORE_{name}": value})
    assert message.startswith(WRONG[name][0])


@pytest.mark.parametrize("limit", [1, "1", 10**17, "1048576"])
def test_max_body_is_a_number_or_text(limit: Any) -> None:
    """PLANTSTORE_MAX_BODY may be a number or text."""
    assert Settings({"PLANTSTORE_MAX_BODY": limit})[MAX_BODY] == int(limit)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        *(("STORES", "STORE"), ("TOKEN", "TOKENS"), ("TOKEN_FILE", "TOKENS_FILE"), ("", "LOG")),
        *(("MAXBODY", "MAX_BODY"), ("store", "STORE"), ("PORTS", "PROXIES")),
    ],
)
def test_unknown_setting_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, nearest: str
) -> None:
    """A name that begins with PLANTSTORE_ and is no setting is refused; the message suggests one.

    This applies to the environment and to the config of create_app.
    """
    expected = f"PLANTSTORE_{name} is not a setting. Did you mean PLANTSTORE_{nearest}?"
    unknown = {f"PLANTSTORE_{name}": "hunter2"}
    assert refusal(PLANTSTORE_TOKENS="t", **unknown) == expected
    monkeypatch.setenv(*unknown.popitem())
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
