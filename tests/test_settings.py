"""Settings, from the environment and from create_app's config."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from plantstore import SettingsError, create_app
from plantstore.settings import Settings

from .sites import ROSE

DIGEST = sha256(b"hashed").hexdigest()


def accepts(token: str, **config: Any) -> bool:
    """Tell whether a service so configured accepts a token."""
    client = create_app(config).test_client()
    headers = {"Authorization": f"Bearer {token}"}
    return client.post("/plants", json=ROSE, headers=headers).status_code == 200


def refusal(**config: Any) -> str:
    """Return how a service so configured refuses to start, checked to be one line."""
    with pytest.raises(SettingsError) as caught:
        create_app(config)
    message = str(caught.value)
    assert "\n" not in message
    assert "hunter2" not in message
    return message


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings come from the environment."""
    monkeypatch.setenv("PLANTSTORE_TOKENS", "fromenv")
    assert accepts("fromenv")


def test_config_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What create_app is given goes before the environment, and into app.config."""
    monkeypatch.setenv("PLANTSTORE_TOKENS", "fromenv")
    assert accepts("fromconfig", PLANTSTORE_TOKENS="fromconfig")
    assert not accepts("fromenv", PLANTSTORE_TOKENS="fromconfig")
    app = create_app({"TESTING": True, "PLANTSTORE_MAX_BODY": 5})
    assert (app.testing, app.config["PLANTSTORE_MAX_BODY"]) == (True, 5)


def test_secrets_of_the_environment_stay_out_of_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token from the environment is not copied into app.config."""
    monkeypatch.setenv("PLANTSTORE_TOKENS", "hunter2")
    assert "hunter2" not in str(create_app().config)


@pytest.mark.parametrize("token", ["one", "two", "three", "hashed"])
def test_tokens_are_listed(token: str) -> None:
    """Tokens are separated by commas or white space, each plain or as its digest."""
    assert accepts(token, PLANTSTORE_TOKENS=f" one,two\n, three\tsha256:{DIGEST},")


def test_config_may_hold_a_list() -> None:
    """In create_app's config the tokens may also stand in a list, and one may be a number."""
    assert accepts("two", PLANTSTORE_TOKENS=["one", "two"])
    assert accepts("123", PLANTSTORE_TOKENS=123)


def test_tokens_come_from_a_file(tmp_path: Path) -> None:
    """A file has a token or digest a line, then perhaps the client's name, and comments after #."""
    path = tmp_path / "tokens"
    path.write_text(
        "\ufeffone # the first\n\n# nothing\n two\tFlora of the Garden # here \n"
        f"sha256:{DIGEST}\r\nlast Fauna\u2028nobody\x0cnobody\r\n"
    )
    verify = Settings.read({"PLANTSTORE_TOKENS_FILE": path}).verify_token
    clients = [verify("one"), verify("two"), verify("hashed"), verify("nobody")]
    assert clients == ["line-1", "Flora of the Garden", "line-5", None]
    assert verify("last") is not None


def test_both_sources_of_tokens_count(tmp_path: Path) -> None:
    """Tokens of the list and of the file are accepted alike."""
    path = tmp_path / "tokens"
    path.write_text("infile")
    both = {"PLANTSTORE_TOKENS": "listed", "PLANTSTORE_TOKENS_FILE": str(path)}
    assert accepts("infile", **both)
    assert accepts("listed", **both)


@pytest.mark.parametrize("tokens", [None, "", " ", ",", " , \n"])
def test_it_never_starts_open(tokens: str | None) -> None:
    """Without a token it refuses to start, and says what to set."""
    assert "set PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE" in refusal(PLANTSTORE_TOKENS=tokens)


def test_an_empty_file_of_tokens_is_none(tmp_path: Path) -> None:
    """A file without a token is as good as none."""
    path = tmp_path / "tokens"
    path.write_text("# later\n")
    assert "no token is configured" in refusal(PLANTSTORE_TOKENS_FILE=str(path))


@pytest.mark.parametrize(
    "bad", ["hunter2\xf6", "sha256:hunter2", "hunter2=x", "hunter2:", '"hunter2"']
)
def test_a_bad_token_is_refused(tmp_path: Path, bad: str) -> None:
    """What can't be a token is refused, with its place and without showing it."""
    assert refusal(PLANTSTORE_TOKENS=f"fine,{bad}").startswith("PLANTSTORE_TOKENS: number 2 ")
    path = tmp_path / "tokens"
    path.write_text(f"# tokens\nfine\n{bad} hunter2\n")
    message = refusal(PLANTSTORE_TOKENS_FILE=str(path))
    assert message.startswith("PLANTSTORE_TOKENS_FILE: line 3 ")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """A file of tokens that is missing, no file, or not text is refused, and not named."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, fault in (
        ("hunter2", os.strerror(2)),
        (str(tmp_path), os.strerror(21)),
        (str(binary), "not UTF-8 text"),
        ("hunter2\0", "not UTF-8 text"),
    ):
        assert refusal(PLANTSTORE_TOKENS_FILE=path) == f"PLANTSTORE_TOKENS_FILE: {fault}"


@pytest.mark.parametrize(
    "limit", ["0", "-1", "", " ", "1e6", "1_000", "١", "10 MB", 0, 1.5, True, None]
)
def test_a_bad_limit_is_refused(limit: Any) -> None:
    """A limit that is not a whole number of bytes from 1 on is refused by the setting's name."""
    message = refusal(PLANTSTORE_TOKENS="t", PLANTSTORE_MAX_BODY=limit)
    assert message.startswith("PLANTSTORE_MAX_BODY must be ")


@pytest.mark.parametrize("limit", [1, "1", 10**17, "1048576"])
def test_a_limit_is_a_number_of_bytes(limit: Any) -> None:
    """The limit may be given as a number or, as in the environment, as text."""
    settings = Settings.read({"PLANTSTORE_TOKENS": "t", "PLANTSTORE_MAX_BODY": limit})
    assert settings.max_body == int(limit)


@pytest.mark.parametrize("url", ["", "memory", "foo://me:hunter2@host/db", None, "me:hunter2@host"])
def test_a_bad_store_is_refused(url: str | None) -> None:
    """A store URL that means nothing, the empty one included, is refused by the setting's name."""
    message = refusal(PLANTSTORE_TOKENS="t", PLANTSTORE_STORE=url)
    assert message.startswith("PLANTSTORE_STORE: ")


def test_settings_show_no_secret() -> None:
    """The repr of settings shows neither a token nor what is in the store's URL."""
    source = {"PLANTSTORE_TOKENS": "hunter2", "PLANTSTORE_STORE": "foo://me:hunter2@host/db"}
    assert "hunter2" not in repr(Settings.read(source))
