"""Files that people and programs get wrong: random bytes, and valid files with mistakes in them.

FUZZ_FACTOR multiplies how many examples there are.
"""

import codecs
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import yaml
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

FACTOR = float(os.environ.get("FUZZ_FACTOR", "1"))
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
SECONDS = 10.0
"""More than any file takes, on a machine that is busy."""
_KEY = r"([\w.-]+|\".*\")(\[\d+\])*"
PLACE = re.compile(
    rf"line \d+(, column \d+)?: |({_KEY}|(\[\d+\])+)(\.{_KEY})*: |the file: "
    r"|larger than \d+ MiB|not UTF-8 text \(byte \d+\)|and more like these"
)
"""What stands behind the name of the file in a message: where in it, or what is wrong with all of it."""

WORDS = (
    *(b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\xe2\x80\xa8", b"\x85", b"\r\n", b"\r", b"\t", b"\n", b"    "),
    *(
        b"&a ",
        b"*a",
        b"<<: *a",
        b"!!python/object:os.system ",
        b"!secret ",
        b"!!binary ",
        b"!!int ",
        b"!!set ",
        b"!<x>",
    ),
    *(b"---\n", b"...\n", b"%YAML 9.9\n", b"%TAG ! x\n", b"? ", b"- ", b": ", b", ", b"#", b"|\n", b">-\n", b"'", b'"'),
    *(
        b"[",
        b"]",
        b"{",
        b"}",
        b"{a: " * 5,
        b"[" * 40,
        b"- " * 40,
        b"? " * 40,
        b'"\\ud800"',
        b'"\\x00"',
        b'"\\U00110000"',
    ),
    *(b"1e999", b"-1e-999", b".nan", b"-.inf", b"9" * 400, b"0x" + b"f" * 400, b"-0", b"0o9", b"1_000", b"1:30", b"~"),
    *(b"null", b"true", b"2026-01-02", b"=", b"\xe2\x88\x9e", b"\xf0\x9f\x94\xa5", b"a" * 10_000, b"${HOME}", b"`id`"),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**31, 2**63, 2**64, -(2**63), 10**400, 1e308, 5e-324, float("inf"), float("nan")]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["", " ", "\0", "a\nb", "x" * 5_000, "../../etc/passwd", "/dev/zero", "é\u2028", "\x1b[2J", "a.b[0]"]
    ),
)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
ENCODINGS: tuple[Callable[[bytes], bytes], ...] = (
    lambda data: codecs.BOM_UTF8 + data,
    lambda data: data.decode("utf-8", "replace").encode("utf-16"),
    lambda data: data.decode("utf-8", "replace").encode("utf-16-le"),
    lambda data: data.decode("utf-8", "replace").encode("utf-32"),
    lambda data: data.replace(b"\n", b"\r\n"),
    lambda data: data.replace(b"\n", b"\r"),
    lambda data: data.replace(b"  ", b"\t"),
    lambda data: data + b"\n#" + b"x" * (10 << 20),
    lambda data: data + b"\n" + data,
    lambda data: data + b"---\n" + data,
    lambda data: data[: len(data) // 2],
)


def many(examples: int) -> settings:
    """Return settings for so many examples, times FUZZ_FACTOR."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(max_examples=round(examples * FACTOR), deadline=None, suppress_health_check=slow, phases=PHASES)


def files(valid: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Return files of all kinds, most of which have one of `valid` for a parent."""
    parents = st.sampled_from(list(valid))
    trees = [yaml.safe_load(data) for data in valid]
    return st.one_of(
        st.binary(max_size=400),
        st.lists(st.sampled_from(WORDS), max_size=30).map(b"".join),
        _cut_and_pasted(parents),
        _cut_and_pasted(parents),
        _changed(st.sampled_from(trees)),
        _changed(st.sampled_from(trees)),
        st.builds(lambda data, encode: encode(data), parents, st.sampled_from(ENCODINGS)),
    )


@st.composite
def _cut_and_pasted(draw: st.DrawFn, parents: st.SearchStrategy[bytes]) -> bytes:
    """Take a file and put in, double, or take away pieces and lines."""
    data = bytearray(draw(parents))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.integers(0, 40)))
        kind = draw(st.sampled_from(["put in", "replace", "remove", "flip", "double", "double a line"]))
        if kind in ("put in", "replace"):
            data[begin : end if kind == "replace" else begin] = draw(st.sampled_from(WORDS) | st.binary(max_size=4))
        elif kind == "remove":
            del data[begin:end]
        elif kind == "flip" and begin < len(data):
            data[begin] ^= draw(st.integers(1, 255))
        elif kind == "double":
            data[begin:begin] = data[begin:end]
        else:
            lines = bytes(data).splitlines(keepends=True) or [b""]
            number = draw(st.integers(0, len(lines) - 1))
            lines.insert(draw(st.integers(0, len(lines))), lines[number])
            data = bytearray(b"".join(lines))
    return bytes(data)


@st.composite
def _changed(draw: st.DrawFn, trees: st.SearchStrategy[Any]) -> bytes:
    """Take a file's content, change values and keys anywhere in it, and write it as YAML or as JSON."""
    tree = json.loads(json.dumps(draw(trees)))
    for _ in range(draw(st.integers(1, 3))):
        parent, key = _somewhere(draw, tree)
        if parent is None:
            return _written(draw, draw(TREES))
        kind = draw(st.sampled_from(["value", "value", "wrap", "deep", "remove", "rename", "add", "many"]))
        if kind == "value":
            parent[key] = draw(TREES)
        elif kind == "wrap":
            parent[key] = [parent[key]] if draw(st.booleans()) else {"a": parent[key]}
        elif kind == "deep":
            for _ in range(draw(st.sampled_from([5, 31, 33, 200]))):
                parent[key] = [parent[key]]
        elif kind == "many":
            parent[key] = [parent[key]] * draw(st.sampled_from([17, 300]))
        elif isinstance(parent, dict):
            value = parent.pop(key) if kind in ("remove", "rename") else parent[key]
            if kind != "remove":
                parent[draw(st.text(max_size=10) | st.sampled_from([key.upper(), f"{key}x", "a.b", "x" * 300]))] = value
    return _written(draw, tree)


def _somewhere(draw: st.DrawFn, tree: Any) -> tuple[Any, Any]:
    parent, key = None, None
    place = tree
    while isinstance(place, dict | list) and place:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        parent, key = place, draw(st.sampled_from(keys))
        place = place[key]
        if draw(st.integers(0, 2)) == 0:
            break
    return parent, key


def _written(draw: st.DrawFn, tree: Any) -> bytes:
    if draw(st.booleans()):
        return json.dumps(tree).encode()
    return yaml.safe_dump(tree, allow_unicode=draw(st.booleans()), sort_keys=False).encode("utf-8", "surrogatepass")


def judged(name: str, messages: Sequence[str]) -> None:
    """Hold the messages about a file to what every message is: one line, with the file and the place in it."""
    assert messages
    for message in messages:
        assert message.startswith(f"{name}: "), message
        assert message.isprintable(), message
        assert PLACE.match(message.removeprefix(f"{name}: ")), message
        assert len(message) < 2_000, len(message)


class Stopwatch:
    """Fails where what is done in it takes too much of a processor."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        self._began = time.thread_time()

    def __exit__(self, *_: object) -> None:
        assert time.thread_time() - self._began < self._seconds
