"""A gzip page: one member that any reader can read, made of blocks compressed on their own."""

import gzip
import subprocess
import sys
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.exposition import Format, Renderer
from exporter.exposition.compression import Beginning, deflated, member
from exporter.metrics import Block
from exporter.model import World
from tests.unit.exposition.worlds import device, world


def first_member(page: bytes) -> bytes:
    """Read as curl and browsers do: what follows the first member is an error or lost."""
    reader = zlib.decompressobj(wbits=31)
    content = reader.decompress(page)
    assert reader.eof
    assert reader.unused_data == b""
    return content


def every_member(page: bytes) -> bytes:
    """Read as Go does: member after member."""
    content = b""
    while page:
        reader = zlib.decompressobj(wbits=31)
        content += reader.decompress(page)
        assert reader.eof
        page = reader.unused_data
    return content


@pytest.mark.parametrize("format_", Format)
@pytest.mark.parametrize("blocks", [None, frozenset({Block.ENERGY}), frozenset({Block.PARTITIONS}), frozenset()])
def test_gzip_and_plain_have_the_same_content(format_: Format, blocks: frozenset[Block] | None) -> None:
    renderer, shown = Renderer(), world(device(temperature_celsius={"gpu": 1.0}), versions=dict.fromkeys(Block, 1))
    for _ in range(2):  # first compressed, then from memory
        plain = renderer.page(shown, format_, blocks)
        compressed = renderer.page(shown, format_, blocks, gzip=True)
        assert gzip.decompress(compressed) == first_member(compressed) == every_member(compressed) == plain


def test_a_page_without_anything_is_still_gzip() -> None:
    page = Renderer(["*"]).page(World(snapshots=(), versions={}), Format.TEXT_0_0_4, gzip=True)
    assert gzip.decompress(page) == b""


@given(st.lists(st.binary(max_size=2000), max_size=5))
def test_any_stretches_join_to_one_member(plain: list[bytes]) -> None:
    halves = plain[:2], plain[2:]
    beginning = Beginning()
    for half in halves:
        beginning = beginning.followed_by(half, [deflated(part) for part in half])
    page = member(beginning)
    assert first_member(page) == gzip.decompress(page) == b"".join(plain)


@given(st.lists(st.binary(max_size=200_000), min_size=1, max_size=3))
@settings(max_examples=20, deadline=None)
def test_a_stretch_refers_to_nothing_before_it(plain: list[bytes]) -> None:
    for part in plain:
        for again in (part, part):
            assert zlib.decompressobj(-zlib.MAX_WBITS).decompress(deflated(again)) == again


WITHOUT_MEMORY = """
import random, resource, zlib
from pathlib import Path
from exporter.exposition.compression import deflated

plain = random.Random(1).randbytes(24 << 20)
of_before, most = resource.getrlimit(resource.RLIMIT_AS)
in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + (8 << 20), most))
try:
    deflated(plain)
except MemoryError:
    resource.setrlimit(resource.RLIMIT_AS, (of_before, most))
    print(zlib.decompressobj(-zlib.MAX_WBITS).decompress(deflated(b"whole")))
"""


def test_a_stretch_that_there_was_no_memory_for_leaves_nothing_in_those_after_it() -> None:
    said = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, text=True, check=False)
    assert (said.stdout, said.stderr) == ("b'whole'\n", "")


def test_a_large_page_is_compressed_well() -> None:
    shown = world(*(device(index, temperature_celsius={"gpu": 1.0 * index}) for index in range(64)))
    renderer = Renderer()
    assert len(renderer.page(shown, Format.TEXT_0_0_4, gzip=True)) < len(renderer.page(shown, Format.TEXT_0_0_4)) / 8
