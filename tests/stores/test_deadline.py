"""The deadline of an operation, and the threads of its steps."""

import threading
from collections.abc import Iterator

import pytest

from plantstore import StoreUnavailable
from plantstore.stores.deadline import deadline, remaining, restart, set_waited, start
from tests.support.serving import LIMIT


@pytest.fixture(autouse=True)
def forget_waiting() -> Iterator[None]:
    """Forget after each test that a request has waited."""
    yield
    set_waited(0)


def test_without_a_deadline_there_is_much_time() -> None:
    """Without a deadline, an operation may take years."""
    assert remaining() > 1e6


def test_deadline_ends_with_its_block() -> None:
    """The deadline is that of the block; an earlier one of an outer block stays."""
    with deadline(50):
        assert 40 < remaining() <= 50
        with deadline(500):
            assert remaining() <= 50
        with deadline(5):
            assert remaining() <= 5
        assert 40 < remaining() <= 50
    assert remaining() > 1e6


def test_passed_deadline_has_no_time() -> None:
    """After the deadline, the remaining time is zero and not negative."""
    with deadline(0):
        assert remaining() == 0


@pytest.mark.parametrize(("waited", "most"), [(0, 50), (20, 30), (49.9, 0.4), (1000, 0.4)])
def test_time_that_a_request_has_waited_counts(waited: float, most: float) -> None:
    """A request that has waited for a thread has less time, but at least 0.4 seconds."""
    set_waited(waited)
    with deadline(50):
        assert most / 2 < remaining() <= most


def test_short_deadline_is_not_extended() -> None:
    """The least time of 0.4 seconds does not extend a deadline that is shorter."""
    set_waited(1000)
    with deadline(0.1):
        assert remaining() <= 0.1


def test_thread_has_a_deadline_of_its_own() -> None:
    """A function in a thread may take a minute, however little time its caller has."""

    def step() -> float:
        with deadline(20):
            return remaining()

    set_waited(1000)
    with deadline(0.1):
        assert 50 < start(remaining).result(LIMIT) <= 60
        assert 10 < start(step).result(LIMIT) <= 20
    restart(50)
    try:
        assert 40 < remaining() <= 50
    finally:
        restart(threading.TIMEOUT_MAX)


def test_thread_does_not_delay_the_end_of_the_process() -> None:
    """A thread is a daemon, and has the name of its function."""
    thread = start(threading.current_thread).result(LIMIT)
    assert (thread.daemon, thread.name) == (True, "plantstore current_thread")


def test_exception_of_a_thread_is_passed_on() -> None:
    """The future has the exception that the function raises."""
    with pytest.raises(ZeroDivisionError):
        start(divmod, 1, 0).result(LIMIT)


def test_thread_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system has no resources for a thread, the store is unavailable."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(StoreUnavailable, match="cannot start a thread"):
        start(remaining)
