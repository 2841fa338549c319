"""The names of gunicorn that the worker needs."""

import pytest
from gunicorn.workers.gthread import ThreadWorker

from plantstore.server.worker import Worker, missing_names

OVERRIDDEN = vars(Worker).keys() & vars(ThreadWorker).keys() - {*dir(ThreadWorker.__base__)}


@pytest.mark.parametrize("name", sorted(OVERRIDDEN))
def test_method_that_gunicorn_does_not_have(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each method that the worker overrides is reported if a version of gunicorn lacks it."""
    assert missing_names() == []
    monkeypatch.delattr(ThreadWorker, name)
    assert missing_names() == [f"ThreadWorker.{name}"]
