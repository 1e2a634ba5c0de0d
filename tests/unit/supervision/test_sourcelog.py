import logging

import pytest

from exporter.attribution.source import NOT_YET
from exporter.model import SourceStatus
from exporter.supervision.sourcelog import QUIET_SECONDS, SourceLog

UP = SourceStatus(source="kubelet", up=True)
DOWN = SourceStatus(source="kubelet", up=False, reason="the socket is missing")


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "exporter.attribution")
    return caplog


def levels(said: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in said.records]


def test_change_is_told_once(said: pytest.LogCaptureFixture) -> None:
    log = SourceLog()
    for status in (UP, UP, DOWN, DOWN, UP, UP):
        log.tell([status], 0.0)
    assert [record.getMessage() for record in said.records] == [
        "source of attribution is down",
        "source of attribution is up",
    ]
    assert levels(said) == ["WARNING", "INFO"]
    assert vars(said.records[0])["reason"] == "the socket is missing"


def test_source_that_comes_and_goes_is_told_quietly(said: pytest.LogCaptureFixture) -> None:
    log = SourceLog()
    for status in (DOWN, UP, DOWN, UP):
        log.tell([status], 0.0)
    assert levels(said) == ["WARNING", "INFO", "DEBUG", "DEBUG"]
    log.tell([DOWN], QUIET_SECONDS)
    assert levels(said)[-1] == "WARNING"


def test_source_that_has_only_not_answered_yet_is_no_news(said: pytest.LogCaptureFixture) -> None:
    log = SourceLog()
    for status in (SourceStatus(source="kubelet", up=False, reason=NOT_YET), UP):
        log.tell([status], 0.0)
    assert said.records == []


def test_memory_is_bounded(said: pytest.LogCaptureFixture) -> None:
    log = SourceLog()
    for number in range(1000):
        log.tell([SourceStatus(source="slurm", up=False, reason=str(number))], 0.0)
    assert len(log._told) <= 100
    assert len(said.records) == 1000
