"""Settings from the environment and from the config of create_app."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from plantstore import MemoryStore, SettingsError, create_app
from plantstore.blueprint import OPERATIONS
from plantstore.settings import Settings
from tests.support.reloading import write
from tests.support.responses import check_error, create
from tests.support.sites import ROSE, TOKEN

DIGEST = sha256(b"hashed").hexdigest()
NO_TOKENS = ["hunter2\xf6", "sha256:hunter2", "hunter2=x", "hunter2:", '"hunter2"']
NONE = "no token is configured: set PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE"
NUMBER = "PLANTSTORE_MAX_BODY: must be a whole number, at least 1"
NAMES = f"PLANTSTORE_OPERATIONS: must have one or more of {', '.join(OPERATIONS)},"
# The beginning of the message about wrong values of each setting.
WRONG: list[tuple[str, str, list[Any]]] = [
    ("TOKENS", NONE, [None, 0, [], " , \n"]),
    ("TOKENS", "PLANTSTORE_TOKENS: token number 2 is nei", [f"valid,{bad}" for bad in NO_TOKENS]),
    ("TOKENS_FILE", f"PLANTSTORE_TOKENS_FILE: {os.strerror(2)}", ["hunter2"]),
    ("TOKENS_FILE", "PLANTSTORE_TOKENS_FILE: ", ["hunter2\0"]),
    ("TOKENS_FILE", "PLANTSTORE_TOKENS_FILE: not a regular file", ["/", os.devnull]),
    ("MAX_BODY", NUMBER, ["0", "", "1e6", "1_000", "١", 0, 1.5, True, None]),
    ("STORE", "PLANTSTORE_STORE: ", ["", "memory", "foo://me:hunter2@host/db", None]),
    ("OPERATIONS", NAMES, [" , ", "create,Read", "create;read", [], None, 1]),
    ("LOG", "PLANTSTORE_LOG: must be text or json", ["", "JSON", 1, ["json"]]),
    ("METRICS", "PLANTSTORE_METRICS: must be 0 or 1", ["", "yes", "11", 2]),
    ("PROXIES", "PLANTSTORE_PROXIES: must be a whole number, at least 0", ["-1", "10.0.0.1"]),
]
KUBERNETES = [
    *("PORT", "PORT_8000_TCP", "PORT_8000_TCP_PROTO", "SERVICE_HOST", "SERVICE_PORT_HTTP"),
    *("DB_SERVICE_HOST", "DB_PORT_5432_TCP"),
]


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
    """app.config has the value of each setting, which create_app's config overrides; no secret."""
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
    headers = {"Authorization": "Bearer hunter2", "Content-Type": "application/json"}
    check_error(app.test_client().post("/plants", data=b" " * 101, headers=headers), 41301)
    changed = {**app.config, "PLANTSTORE_MAX_BODY": 10**17}
    assert create_app({**changed, "PLANTSTORE_TOKENS": "hunter2"}).config == changed


@pytest.mark.parametrize("name", ["STORE", "TOKENS_FILE", "TOKENS"])
def test_arguments_replace_settings(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A setting that an argument of create_app replaces is not read; the others are checked."""
    monkeypatch.setenv(f"PLANTSTORE_{name}", '"hunter2"')
    app = create_app(store=MemoryStore(), verify_token={TOKEN: "Flora"}.get)
    assert {"PLANTSTORE_STORE", "PLANTSTORE_TOKENS_FILE"}.isdisjoint(app.config)
    assert create(app.test_client(), ROSE).status_code == 200
    with pytest.raises(SettingsError, match="^PLANTSTORE_MAX_BODY: must be "):
        create_app({"PLANTSTORE_MAX_BODY": 0}, store=MemoryStore(), verify_token=str.upper)


@pytest.mark.parametrize("tokens", [f" one,123\n, three\tsha256:{DIGEST},", ["123", "hashed"], 123])
def test_tokens_of_both_settings(tmp_path: Path, tokens: Any) -> None:
    """Tokens are separated by commas or white space, or a list; those of the file are added."""
    path = write(tmp_path / "tokens", "infile\n")
    both = {"PLANTSTORE_TOKENS": tokens, "PLANTSTORE_TOKENS_FILE": path}
    sent = ("123", "infile", "other", *(["hashed"] if tokens != 123 else []))
    assert [accepts(token, **both) for token in sent] == [token != "other" for token in sent]


def test_wrong_tokens_file_is_refused(tmp_path: Path) -> None:
    """A tokens file that is invalid, half written or empty is refused, without a token or path."""
    path = tmp_path / "hunter2"
    for content, fault in {
        b"valid\nhunter2=x\n": "line 2 is neither ",
        b"\xff\n": "not UTF-8",
        b"valid\nhunter2 expires=9999": "line 2 has no newline",
        b"": "no token is configured",
    }.items():
        path.write_bytes(content)
        assert refusal(PLANTSTORE_TOKENS_FILE=path).startswith(f"PLANTSTORE_TOKENS_FILE: {fault}")


@pytest.mark.parametrize(
    ("name", "message", "value"),
    [(name, message, value) for name, message, values in WRONG for value in values],
)
def test_wrong_value_is_refused(name: str, message: str, value: Any) -> None:
    """With a wrong value of a setting, the service refuses to start, and says what is wrong."""
    tokens = {} if name == "TOKENS_FILE" else {"PLANTSTORE_TOKENS": "t"}
    assert refusal(**{**tokens, f"PLANTSTORE_{name}": value}).startswith(message)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        *(("STORES", "STORE"), ("TOKEN", "TOKENS"), ("TOKEN_FILE", "TOKENS_FILE"), ("", "LOG")),
        *(("MAXBODY", "MAX_BODY"), ("store", "STORE"), ("PROXIE", "PROXIES")),
    ],
)
def test_unknown_setting(monkeypatch: pytest.MonkeyPatch, name: str, nearest: str) -> None:
    """An unknown name in the environment or in create_app's config is refused, with a hint."""
    expected = f"PLANTSTORE_{name} is not a setting. Did you mean PLANTSTORE_{nearest}?"
    unknown = {f"PLANTSTORE_{name}": "hunter2"}
    assert refusal(PLANTSTORE_TOKENS="t", **unknown) == expected
    monkeypatch.setenv(*unknown.popitem())
    assert refusal(PLANTSTORE_TOKENS="t") == expected


@pytest.mark.parametrize(
    "name", [*(f"PLANTSTORE_{name}" for name in KUBERNETES), "PLANTSTORE", "plantstore_store"]
)
def test_variables_of_kubernetes_are_allowed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The variables that Kubernetes sets for services named plantstore are no settings."""
    monkeypatch.setenv(name, "tcp://10.0.0.1:8000")
    assert accepts("t", PLANTSTORE_TOKENS="t")
