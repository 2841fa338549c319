"""The deadline of an operation."""

from collections.abc import Iterator

import pytest

from plantstore.stores.deadline import deadline, note_queued, remaining


@pytest.fixture(autouse=True)
def forget_waiting() -> Iterator[None]:
    """Forget after each test that a request has waited."""
    yield
    note_queued(0)


def test_deadline_ends_with_its_block() -> None:
    """The deadline is that of the block; an earlier one of an outer block stays."""
    assert remaining(1e6) == 1e6
    with deadline(50):
        assert 40 < remaining(100) <= 50
        assert remaining(10) == 10
        with deadline(500):
            assert remaining(100) <= 50
        with deadline(0):
            assert remaining(100) == 0
        assert 40 < remaining(100) <= 50
    assert remaining(100) == 100


@pytest.mark.parametrize(("waited", "most"), [(0, 50), (20, 30), (49.5, 0.5), (50, 0), (1000, 0)])
def test_time_that_a_request_has_waited_counts(waited: float, most: float) -> None:
    """A request that has waited for a thread has less time, or none."""
    note_queued(waited)
    assert remaining(50) == most
    with deadline(50):
        assert most - 1 < remaining(1000) <= most
