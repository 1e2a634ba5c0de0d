import json
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import Config
from exporter.strict_yaml import MAX_BYTES, YamlError, load, read
from exporter.validation import ValidationError, convert

# PyYAML does not join the two halves that JSON writes characters beyond the first plane in.
TEXT = st.text(st.characters(max_codepoint=0xD7FF), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
FRAGMENTS = (
    *("web:", "log:", "sampling: ", "energy_seconds: 1e3", "level: info", "max_requests: 3", "\n", "  ", "- "),
    *("[", "]", "{", "}", "&a ", "*a", "<<: ", "!!int ", "? ", "|", ">", "'", '"', "---", "...", "#", "%", "\t"),
    *("\x00", "\ud800", '"\\ud800"'),
)
FILES = st.binary(max_size=200) | st.lists(st.sampled_from(FRAGMENTS), max_size=30).map(
    lambda parts: "".join(parts).encode("utf-8", "surrogatepass")
)


@given(VALUES)
def test_json_means_the_same_as_yaml(value: object) -> None:
    text = json.dumps(value)
    document = load(text.encode())
    assert document.problems == []
    assert document.value == value


@given(FILES)
def test_whatever_a_file_holds_it_is_a_configuration_or_a_list_of_lines(data: bytes) -> None:
    problems: tuple[str, ...] = ()
    try:
        document = load(data)
        assert isinstance(convert(document.value, Config, document.problems), Config)
    except YamlError as e:
        problems = (str(e),)
    except ValidationError as e:
        problems = e.messages
    assert all(problem and problem.isprintable() for problem in problems)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("1.5E-2", 0.015),
        (".5", 0.5),
        ("+7", 7),
        ("010", 10),
        ("0o17", 15),
        ("0xff", 255),
        ("-.inf", float("-inf")),
        ("~", None),
        ("TRUE", True),
        ("yes", "yes"),
        ("off", "off"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2026-01-02", "2026-01-02"),
        ("0x", "0x"),
        ("1e", "1e"),
        (".", "."),
        ("-", [None]),
        ("!!str 5", "5"),
        ("!!float 5", 5.0),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(text: str, value: object) -> None:
    document = load(text.encode())
    assert document.problems == []
    assert document.value == value
    assert type(document.value) is type(value)


def test_other_users_of_pyyaml_are_left_alone() -> None:
    assert yaml.safe_load("[1e3, yes]") == ["1e3", True]


def test_equal_keys_are_reported_wherever_they_are() -> None:
    document = load(b"a: {b: 1, b: 2}\nc: [{d: 1, d: 2}]\n'a': 3\n")
    assert document.problems == ["a.b: given twice (line 1)", "c[0].d: given twice (line 2)", "a: given twice (line 3)"]
    assert document.value == {"a": {"b": 1}, "c": [{"d": 1}]}


def test_a_file_is_read_as_far_as_it_may_be_large(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a" * 10)
    assert read(path) == b"a" * 10
    assert len(read("/dev/zero")) == MAX_BYTES + 1
    path.write_bytes(b"a" * (2 * MAX_BYTES))
    assert len(read(path)) == MAX_BYTES + 1


def test_a_pipe_is_read_to_its_end() -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, b"log: {}")
        os.close(writer)
        assert read(f"/dev/fd/{reader}") == b"log: {}"
    finally:
        os.close(reader)


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "pipe"])
def test_what_cannot_be_read_again_is_refused_where_it_has_to_be(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        read(tmp_path / name, again=True)
