import io
import json
import logging
import os
import re
import resource
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter import logs


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, raises = root.handlers[:], root.level, logging.raiseExceptions
    yield
    root.handlers[:], logging.raiseExceptions = handlers, raises
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def logged(form: str, *args: Any, level: str = "info", at: int = logging.INFO, **kwargs: Any) -> str:
    stream = io.StringIO()
    logs.configure(level, form, stream)
    logging.getLogger("exporter.x").log(at, *args, **kwargs)
    return stream.getvalue()


def logfmt(line: str) -> dict[str, str]:
    """Read logfmt as its readers do: names, and values that are bare or quoted with JSON's escapes."""
    pattern = re.compile(r'([^\s="]+)=("(?:[^"\\]|\\.)*"|[^\s="]*)(?: |\n\Z)')
    fields, end = {}, 0
    while end < len(line):
        match = pattern.match(line, end)
        assert match, line[end:]
        value = match[2]
        fields[match[1]] = json.loads(value) if value.startswith('"') else value
        end = match.end()
    return fields


def test_a_line_has_time_level_logger_and_message() -> None:
    fields = logfmt(logged("logfmt", "GPU %s is lost", "nvidia0", at=logging.WARNING))
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ", fields.pop("time"))
    assert fields == {"level": "warn", "logger": "exporter.x", "msg": "GPU nvidia0 is lost"}


def test_extra_values_are_fields() -> None:
    line = logged("logfmt", "up", extra={"provider": "amd", "devices": 8, "a b": "c d"})
    assert line.endswith(' msg=up provider=amd devices=8 a_b="c d"\n')
    assert json.loads(logged("json", "up", extra={"devices": 8}))["devices"] == "8"


@given(st.text())
def test_a_record_is_one_line_whatever_it_says(text: str) -> None:
    for form, read in (("logfmt", logfmt), ("json", json.loads)):
        line = logged(form, "%s", text)
        assert line.splitlines(keepends=True) == [line]
        assert line.isprintable() or line[:-1].isprintable()
        assert read(line)["msg"] == text


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_a_long_value_is_cut(form: str) -> None:
    assert len(logged(form, "x" * 100_000)) < 5_000


def test_an_exception_is_its_text_and_its_place() -> None:
    try:
        int("two\nlines")
    except ValueError:
        fields = logfmt(logged("logfmt", "broke", exc_info=True))
        assert "traceback" in logfmt(logged("logfmt", "broke", exc_info=True, level="debug"))
    assert fields["error"] == "ValueError: invalid literal for int() with base 10: 'two\\nlines'"
    assert re.search(r"test_logs\.py:\d+$", fields["at"])
    assert "traceback" not in fields


def test_wrong_arguments_do_not_lose_the_record() -> None:
    assert logfmt(logged("logfmt", "%d devices", "no"))["msg"] == "%d devices ('no',)"


def test_levels_below_are_left_out() -> None:
    assert logged("logfmt", "x", level="warn") == ""
    assert logged("logfmt", "x", level="warn", at=logging.ERROR) != ""
    assert logfmt(logged("logfmt", "x", level="debug", at=logging.DEBUG))["level"] == "debug"


def test_a_closed_stream_raises_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    logs.configure("info", "logfmt", stream)
    stream.close()
    logging.getLogger().info("lost")
    assert capsys.readouterr().err == ""


def test_a_pipe_that_nobody_reads_loses_lines_and_is_told_how_many() -> None:
    reader, writer = os.pipe()
    try:
        handler = logs.Unhurried(writer)
        handler.setFormatter(logging.Formatter("%(message)s%(lines)s", defaults={"lines": ""}))
        long = "x" * (2 * select.PIPE_BUF)
        for _ in range(100):
            handler.emit(logging.makeLogRecord({"msg": long}))
        read = os.read(reader, 1 << 20)
        whole = read.count(f"{long}\n".encode())
        assert 0 < whole < 100
        handler.emit(logging.makeLogRecord({"msg": "after"}))
        *_, told, after, rest = os.read(reader, 1 << 20).decode().split("\n")
        assert told.endswith(str(100 - whole))
        assert (after, rest) == ("after", "")
    finally:
        os.close(reader)
        os.close(writer)


def test_a_disk_that_is_full_loses_lines_and_is_told_how_many(tmp_path: Path) -> None:
    path = tmp_path / "log"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with path.open("wb") as file:
        handler = logs.Unhurried(file.fileno())
        handler.setFormatter(logging.Formatter("%(message)s%(lines)s", defaults={"lines": ""}))
        long = "x" * 3000
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))  # the last write that fits is cut short
        try:
            for _ in range(10):
                handler.emit(logging.makeLogRecord({"msg": long}))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        handler.emit(logging.makeLogRecord({"msg": "after"}))
    *whole, torn, told, after, rest = path.read_text().split("\n")
    assert whole == [long] * 3
    assert long.startswith(torn)
    assert told.endswith("7")
    assert (after, rest) == ("after", "")


def test_lines_that_were_lost_are_told_of_in_another_format_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as read, os.fdopen(writer, "w") as written:
        monkeypatch.setattr("sys.stderr", written)  # as the interpreter sets it when it starts
        logs.configure("info", "logfmt")
        for _ in range(100):
            logging.getLogger("exporter.x").info("x" * 3000)
        os.set_blocking(reader, False)
        read.read(1 << 20)
        logs.configure("info", "json")
        logging.getLogger("exporter.x").info("after")
        *_, told, after = read.read(1 << 20).decode().splitlines()
        assert int(json.loads(told)["lines"]) > 0
        assert json.loads(after)["msg"] == "after"


def test_a_pipe_that_is_closed_raises_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        logging.raiseExceptions = False
        logs.Unhurried(writer).emit(logging.makeLogRecord({"msg": "lost"}))
    finally:
        os.close(writer)
    assert capsys.readouterr().err == ""
