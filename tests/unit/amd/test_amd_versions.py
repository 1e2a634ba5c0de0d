from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.providers.amd.versions import (
    library_version,
    match,
    numbers,
    package_release,
    package_version,
    spoken,
    version_of_file,
)


def package(version: str, *, handles: bool = False) -> Any:
    known = {"amdsmi_get_gpu_process_info": print} if handles else {}
    return SimpleNamespace(__version__=version, **known)


@pytest.mark.parametrize(
    ("module", "library"),
    [
        (package("6.1.0", handles=True), (24, 4, 1)),
        (package("6.1.1", handles=True), (24, 5, 1)),
        (package("6.1.2"), (24, 5, 2)),
        (package("24.5.1+c5106a9"), (24, 5, 2)),
        (package("24.5.1+c5106a9", handles=True), (24, 5, 1)),
        (package("6.2.2.post0"), (24, 6, 2)),
        (package("24.6.2+2b02a07"), (24, 6, 2)),
        (package("6.3.1"), (24, 7, 1)),
        (package("24.7.1+8dc45db"), (25, 1, 0)),
        (package("6.4.0"), (25, 3, 0)),
        (package("25.5.1+41065ee6"), (25, 5, 1)),
        (package("7.0.1"), (26, 0, 2)),
        (package("26.2.0+021c61fc"), (26, 2, 0)),
        (package("10.0.0"), (27, 0, 0)),
        (package("27.0.0"), (27, 1, 0)),
        (package("28.0.0"), (28, 3, 0)),
    ],
)
def test_pairs_of_one_release_match(module: Any, library: tuple[int, ...]) -> None:
    assert match(package_release(module), library)


@pytest.mark.parametrize(
    ("module", "library"),
    [
        (package("6.1.0", handles=True), (24, 5, 2)),
        (package("6.1.2"), (24, 5, 1)),
        (package("6.2.4"), (24, 7, 1)),
        (package("6.3.3"), (25, 3, 0)),
        (package("6.3.3"), (26, 0, 0)),
        (package("24.7.1+8dc45db"), (25, 3, 0)),
        (package("6.4.3"), (26, 0, 0)),
        (package("7.0.2"), (25, 5, 1)),
        (package("7.0.2"), (26, 1, 0)),
        (package("26.2.0"), (27, 0, 0)),
        (package("27.0.0"), (28, 0, 0)),
        (package("7.0.2"), ()),
        (package("5.7.1"), (23, 1, 0)),
    ],
)
def test_pairs_of_different_releases_do_not(module: Any, library: tuple[int, ...]) -> None:
    assert not match(package_release(module), library)


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ({"year": 24, "major": 7, "minor": 1, "release": 0, "build": "x"}, (24, 7, 1)),
        ({"major": 25, "minor": 5, "release": 1, "build": "x"}, (25, 5, 1)),
        ({"year": 0, "major": 25, "minor": 5, "release": 1}, (25, 5, 1)),
        ({"year": 26, "major": 0, "minor": 2, "release": 0}, (26, 0, 2)),
        ({"major": 3, "minor": 0, "release": 0}, ()),
        ({}, ()),
    ],
)
def test_the_version_of_a_library_is_told_from_any_shape_of_answer(
    answer: dict[str, Any], version: tuple[int, ...]
) -> None:
    assert library_version(answer) == version


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("7f00-7f01 r-xp 00000000 08:01 42 /opt/rocm-6.3.0/lib/libamd_smi.so.24.7.60300", (24, 7)),
        ("7f00-7f01 r-xp 00000000 08:01 42 /opt/rocm/lib/libamd_smi.so.26", ()),
        ("7f00-7f01 r-xp 00000000 08:01 42 /usr/lib/libc.so.6", ()),
    ],
)
def test_the_name_of_the_file_tells_the_version_too(line: str, version: tuple[int, ...]) -> None:
    assert version_of_file(line) == version


def test_a_package_that_states_no_version_is_of_6_0() -> None:
    assert package_version(SimpleNamespace(__file__="/nowhere/amdsmi/__init__.py")) == "6.0"


@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=6),
    st.sampled_from(["", "+0012a68", ".post0", "-dirty", "rc1"]),
)
def test_the_leading_numbers_of_a_version_are_kept(parts: list[int], tail: str) -> None:
    said = ".".join(map(str, parts))
    assert numbers(said + tail) == tuple(parts)
    assert spoken(tuple(parts)) == said


@given(st.text(max_size=20))
def test_no_text_breaks_the_comparison(said: str) -> None:
    match(package_release(package(said)), numbers(said))
