"""A file of access tokens: changes, faults, and tokens that expire."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import Mock

import pytest

from plantstore import Client, VerifyToken, create_app
from plantstore.errors import Refused
from plantstore.settings import Settings
from plantstore.tokens.file import TokenFile, read_file
from plantstore.tokens.lines import ListedToken
from tests.support.commands import Run
from tests.support.reloading import PAST, write
from tests.support.serving import LIMIT
from tests.support.sites import ROSE
from tests.support.waiting import wait_until

RESTLESS = "The file of tokens changes all the time: it is used all the same"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at a file twenty times as often."""
    monkeypatch.setattr("plantstore.tokens.file._INTERVAL", 0.05)
    monkeypatch.setattr("plantstore.tokens.file._STILL", 0.05)


def verify(path: Path, **settings: str) -> VerifyToken:
    """Return the token check of a service with this file of tokens."""
    return Settings({"PLANTSTORE_TOKENS_FILE": str(path), **settings}).verify_token()


def day(days: int) -> str:
    """Return the date that is this number of days from today, in UTC."""
    return f"{datetime.now(UTC) + timedelta(days):%Y-%m-%d}"


def test_expired_token_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A token is 40102 from its date on, in UTC; the log names its client."""
    caplog.set_level("INFO", "plantstore")
    text = f"old kiosk expires={day(0)}\nnew Flora expires={day(1)}\n"
    path = write(tmp_path / "tokens", text)
    client = create_app({"PLANTSTORE_TOKENS_FILE": path}).test_client()
    caplog.clear()
    for token, status in (("old", 401), ("new", 200)):
        headers = {"Authorization": f"Bearer {token}"}
        response = client.post("/plants", json=ROSE, headers=headers)
        assert response.status_code == status
    assert "The token of 'kiosk' has expired" in caplog.messages


def test_tokens_of_a_file(tmp_path: Path) -> None:
    """A token has the right to the operations of its line; without them, to all."""
    check = verify(write(tmp_path / "tokens", "one shop operations=read,list\ntwo kiosk\n"))
    assert check("one") == Client("shop", ("read", "list"))
    assert check("two") == "kiosk"
    assert verify(write(tmp_path / "old", "old expires=2020-01-01\n"))("old") is None


@pytest.mark.usefixtures("quick")
def test_changed_file_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A changed file of tokens is read again within some seconds, without a signal."""
    caplog.set_level("INFO", "plantstore")
    path = write(tmp_path / "tokens", "one kiosk\n")
    check = verify(path, PLANTSTORE_TOKENS="listed")
    assert (check("one"), check("listed"), check("two")) == ("kiosk", "token-1", None)
    write(path, "two Flora\nthree\n")
    wait_until(lambda: check("two") == "Flora")
    assert (check("one"), check("listed")) == (None, "token-1")
    path.write_text("four\n")  # The same file.
    wait_until(lambda: check("four") == "line-1")
    assert check("two") is None
    assert caplog.messages == ["Tokens: now 2 from the file", "Tokens: now 1 from the file"]


@pytest.mark.usefixtures("quick")
def test_changed_link_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to another file is a change, also by a relative path from another folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        Path(name).write_text(name)
    Path("link").symlink_to("one")
    check = verify(Path("link"))
    assert check("one") == "line-1"
    Path("other").symlink_to("two")
    Path("other").replace("link")
    monkeypatch.chdir("/")
    wait_until(lambda: check("two") == "line-1")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "fault",
    ["# none\n", "two\n\nhunter2#x\n", "missing", pytest.param("pipe", marks=pytest.mark.posix)],
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
        os.utime(path, (PAST, PAST))
    elif fault != "missing":
        write(path, fault)
    assert wait_for_message(check, caplog).startswith("The file of tokens cannot be used: ")
    assert caplog.messages[0].endswith("The earlier tokens (1) stay in use.")
    assert ("line 3 is neither" in caplog.text) == ("#x" in fault)
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


def test_file_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    """A content is not used before the file has had it for a second, and then at once."""
    path = write(tmp_path / "tokens", "one\n")
    check = verify(path)
    for number in range(4):
        written = time.monotonic()
        path.write_text(f"half{number}\n")
        wait_until(lambda: time.monotonic() > written + 0.4)  # noqa: B023
        assert check("one") == "line-1" or time.monotonic() >= written + 1
    write(path, "two\n")
    looked = time.monotonic()
    wait_until(lambda: time.monotonic() > looked + 1)
    assert check("one") is None


@pytest.mark.parametrize("command", [False, True])
def test_start_while_a_file_is_written(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, command: bool
) -> None:
    """A service or a check that starts while a file is written uses no half of a line."""
    for name in ("_STILL", "_OLD"):
        monkeypatch.setattr(f"plantstore.tokens.file.{name}", LIMIT)
    monkeypatch.setenv("PLANTSTORE_TOKENS_FILE", str(tmp_path / "tokens"))
    path = tmp_path / "tokens"
    path.write_text("old kiosk")
    with ThreadPoolExecutor(1) as starting:
        start = starting.submit(run, "check") if command else starting.submit(verify, path)
        with pytest.raises(TimeoutError):
            start.result(0.3)
        with path.open("a") as file:
            file.write(" expires=2020-01-01 operations=read\n")
        os.utime(path, (PAST, PAST))
        result: Any = start.result(LIMIT)
    assert "(expired: 'kiosk')" in result.stdout if command else result("old") is None


def test_file_that_changes_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that had changed at eleven looks is used all the same, with a warning."""
    monkeypatch.setattr("plantstore.tokens.file._INTERVAL", 0.03)
    path = write(tmp_path / "tokens", "one\n")
    check = verify(path)
    write(path, "two\n")
    began = time.monotonic()
    wait_and_touch(path, lambda: check("one") is None)
    assert time.monotonic() >= began + 0.3
    # No line again if the content is the same.
    wait_and_touch(path, lambda: check("two") is None or time.monotonic() > began + 1)
    assert caplog.messages == [RESTLESS]


def test_start_with_a_file_that_changes_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A start uses a file that had changed at eleven looks, with a warning."""
    monkeypatch.setattr("plantstore.tokens.file._INTERVAL", 0.03)
    path = write(tmp_path / "tokens", "one\n")
    touch(path)
    with ThreadPoolExecutor(1) as starting:
        start = starting.submit(verify, path)
        wait_and_touch(path, start.done)
    assert start.result()("one") == "line-1"
    assert caplog.messages == [RESTLESS]


def wait_and_touch(path: Path, condition: Callable[[], bool]) -> None:
    """Touch a file again and again until a condition is true."""

    def is_true() -> bool:
        touch(path)
        return condition()

    wait_until(is_true)


def touch(path: Path) -> None:
    """Touch a file. Its time is later each time, and in the future, so it never seems to be old."""
    time = max(path.stat().st_mtime_ns + 1_000_000, 4_000_000_000_000_000_000)
    os.utime(path, ns=(time, time))


@pytest.mark.usefixtures("quick")
def test_file_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A content is not used if the file has changed while it was read."""
    path = write(tmp_path / "tokens", "one\n")
    check = verify(path)
    write(path, "half\n")

    def read(name: str) -> list[ListedToken]:
        tokens = read_file(name)
        write(path, "two\nthree\n")
        monkeypatch.undo()
        return tokens

    monkeypatch.setattr("plantstore.tokens.file.read_file", read)
    wait_until(lambda: check("two") == "line-1" or check("half") is not None)
    assert (check("half"), check("three")) == (None, "line-2")


@pytest.mark.posix
@pytest.mark.usefixtures("quick")
def test_failed_read_is_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If a changed file cannot be read once, it is read later; the log has the fault once."""
    import resource

    path = write(tmp_path / "tokens", "one\n")
    check = verify(path)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    write(path, "two\n")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        message = wait_for_message(check, caplog)
        assert message.startswith(f"The file of tokens cannot be used: {os.strerror(24)}. ")
        looked = time.monotonic()
        wait_until(lambda: time.monotonic() > looked + 0.3)
        assert wait_for_message(check, caplog) == message
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    wait_until(lambda: check("two") == "line-1")


def test_broken_file_is_not_read_for_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that starts with a broken file reads it once per interval, not for each request."""
    monkeypatch.setattr("plantstore.tokens.file._INTERVAL", LIMIT)
    monkeypatch.setattr(TokenFile, "was_checked", True)
    reads = Mock(side_effect=read_file)
    monkeypatch.setattr("plantstore.tokens.file.read_file", reads)
    check = verify(write(tmp_path / "tokens", "# none\n"))
    before = reads.call_count
    for _ in range(20):
        with pytest.raises(Refused, match="50304"):
            check("one")
    assert reads.call_count == before + 1


@pytest.mark.posix
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.usefixtures("quick")
def test_concurrent_use_while_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one thread reads a changed file, the others use the earlier tokens.

    A process that is forked meanwhile reads it, too.
    """
    path, parent = write(tmp_path / "tokens", "one\n"), os.getpid()
    check = verify(path)
    is_reading, is_over = Event(), Event()

    def read(name: str) -> list[ListedToken]:
        if os.getpid() == parent:
            is_reading.set()
            is_over.wait(LIMIT)
        return read_file(name)

    monkeypatch.setattr("plantstore.tokens.file.read_file", read)
    write(path, "two\n")
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(wait_until, lambda: check("two") is not None)
        assert is_reading.wait(LIMIT)
        assert check("one") == "line-1"
        child = get_context("fork").Process(target=wait_until, args=[lambda: check("two")])
        child.start()
        child.join()
        is_over.set()
        reading.result()
    assert child.exitcode == 0
