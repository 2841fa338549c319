"""The deadline of an operation."""

from plantstore.stores.deadline import deadline, remaining


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
