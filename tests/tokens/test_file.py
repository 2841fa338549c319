"""A file of access tokens: changes, faults, and tokens that expire."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest

from plantstore import VerifyToken, create_app
from plantstore.errors import Refused
from plantstore.settings import Settings
from plantstore.tokens.file import TokenFile, parse
from plantstore.tokens.lines import ListedToken
from tests.support.reloading import write
from tests.support.serving import LIMIT
from tests.support.sites import ROSE
from tests.support.waiting import wait_until


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at a file twenty times as often."""
    monkeypatch.setattr("plantstore.tokens.file._INTERVAL", 0.05)


def verify(path: Path, **settings: str) -> VerifyToken:
    """Return the token check of a service with this file of tokens."""
    return Settings({"PLANTSTORE_TOKENS_FILE": str(path), **settings}).verify_token()


def test_expired_token_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A token is 40102 from its date on, in UTC; the log names its client."""
    caplog.set_level("INFO", "plantstore")
    today, tomorrow = (f"{datetime.now(UTC) + timedelta(days):%Y-%m-%d}" for days in (0, 1))
    text = f"old kiosk expires={today}\nnew Flora expires={tomorrow}\n"
    path = write(tmp_path / "tokens", text)
    client = create_app({"PLANTSTORE_TOKENS_FILE": path}).test_client()
    caplog.clear()
    for token, status in (("old", 401), ("new", 200)):
        headers = {"Authorization": f"Bearer {token}"}
        response = client.post("/plants", json=ROSE, headers=headers)
        assert response.status_code == status
    assert "The token of 'kiosk' has expired" in caplog.messages


@pytest.mark.parametrize("change", ["one\ntwo\n", "two\n", "rename", "link"])
def test_change_is_used_two_seconds_later(tmp_path: Path, change: str) -> None:
    """Each request that comes two seconds after a change of the file uses it, in any thread."""
    folder, path, other = tmp_path, tmp_path / "tokens", tmp_path / "other"
    old = write(folder / "old", "one\n")
    other.write_text("two\n")
    path.symlink_to(old) if change == "link" else path.write_text("one\n")
    os.utime(other, ns=(path.stat().st_mtime_ns, path.stat().st_mtime_ns))
    check = verify(path)
    assert (check("one"), check("two")) == ("line-1", None)
    if change == "link":  # As Kubernetes does.
        (folder / "new").symlink_to(other)
        other = folder / "new"
    path.write_text(change) if change.endswith("\n") else other.replace(path)
    changed = time.monotonic()
    wait_until(lambda: time.monotonic() > changed + 2)
    with ThreadPoolExecutor(8) as threads:
        found = [*threads.map(check, ["one", "two"] * 8)]
    assert found == (["line-1", "line-2"] if "one" in change else [None, "line-1"]) * 8


@pytest.mark.usefixtures("quick")
def test_changed_file_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A changed file is read again, without a signal, and the log says so once.

    It may have a byte order mark. A relative path is that of the start, also in another folder.
    """
    caplog.set_level("INFO", "plantstore")
    path = write(tmp_path / "tokens", "one kiosk\n")
    monkeypatch.chdir(tmp_path)
    check = verify(Path("tokens"), PLANTSTORE_TOKENS="listed")
    monkeypatch.chdir("/")
    assert (check("one"), check("listed"), check("two")) == ("kiosk", "token-1", None)
    write(path, "\ufefftwo Flora\nthree\n")
    wait_until(lambda: check("two") == "Flora")
    assert (check("one"), check("listed")) == (None, "token-1")
    path.touch()  # It has the same tokens.
    looked = time.monotonic()
    wait_until(lambda: check("one") is None and time.monotonic() > looked + 0.3)
    assert caplog.messages == ["Tokens: now 2 from the file"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "fault",
    [
        *("# none\n", "two\n\nhunter2#x\n", "two\nhunter2", "missing"),
        pytest.param("pipe", marks=pytest.mark.posix),
    ],
)
def test_earlier_tokens_stay_in_use(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """While the file is broken, empty or missing, the earlier tokens stay, as the log says."""
    caplog.set_level("INFO", "plantstore")
    path = write(tmp_path / "tokens", "one\n")
    check = verify(path)
    path.unlink()
    if fault == "pipe":
        os.mkfifo(path)
    elif fault != "missing":
        write(path, fault)
    assert wait_for_message(check, caplog).startswith("The file of tokens cannot be used: ")
    assert caplog.messages[0].endswith("The earlier tokens (1) stay in use.")
    assert ("line 3 is neither" in caplog.text) == ("#x" in fault)
    assert ("line 2 has no newline at its end" in caplog.text) == fault.endswith("hunter2")
    assert "hunter2" not in caplog.text
    assert (check("one"), check("two")) == ("line-1", None)
    path.unlink(missing_ok=True)
    write(path, "one\n")
    caplog.clear()
    assert wait_for_message(check, caplog) == "Tokens: now 1 from the file"


def wait_for_message(check: VerifyToken, log: pytest.LogCaptureFixture) -> str:
    """Return the message of the log when there is one. Meanwhile, the earlier token is accepted."""
    wait_until(lambda: check("one") == "line-1" and log.messages != [])
    (message,) = log.messages
    return message


@pytest.mark.usefixtures("quick")
def test_file_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the file changes while it is read, the next look reads it again."""
    path = write(tmp_path / "tokens", "one\n")
    check = verify(path)

    def read(content: bytes) -> list[ListedToken]:
        monkeypatch.undo()
        write(path, "two\n")
        return parse(content)

    monkeypatch.setattr("plantstore.tokens.file.parse", read)
    write(path, "old\n")
    wait_until(lambda: check("two") == "line-1")


@pytest.mark.usefixtures("quick")
def test_failed_read_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If a changed file cannot be read once, it is read later; the log has the fault once."""
    path = write(tmp_path / "tokens", "one\n")
    check = verify(path)
    with monkeypatch.context() as failing:
        failing.setattr("plantstore.tokens.file.parse", Mock(side_effect=OSError(24, "full")))
        write(path, "two\n")
        message = wait_for_message(check, caplog)
        assert message.startswith("The file of tokens cannot be used: full. ")
        looked = time.monotonic()
        wait_until(lambda: time.monotonic() > looked + 0.3)
        assert wait_for_message(check, caplog) == message
    wait_until(lambda: check("two") == "line-1")


def test_broken_file_is_not_read_for_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that starts with a broken file reads it once a second, not for each request."""
    monkeypatch.setattr("plantstore.tokens.file._INTERVAL", LIMIT)
    monkeypatch.setattr(TokenFile, "was_checked", True)
    check = verify(write(tmp_path / "tokens", "# none\n"))
    with pytest.raises(Refused, match="50304"):
        check("one")
    write(tmp_path / "tokens", "one\n")
    for _ in range(20):
        with pytest.raises(Refused, match="50304"):
            check("one")
