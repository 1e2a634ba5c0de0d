"""How a gzip page is put together from blocks that were compressed one by one.

Each block is a stretch of deflate data that ends on a byte boundary and refers to nothing outside, so stretches can be
joined. The page is a single gzip member around them: curl, browsers and several client libraries read only the
first of several members.
"""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

LEVEL = 3

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # deflate, no flags, no time, system not told
_LAST = b"\x03\x00"  # an empty final block


class Beginning(NamedTuple):
    """The page as far as it is joined, and what the end of the member has to say of it."""

    joined: bytes = _HEADER
    checksum: int = 0
    size: int = 0

    def followed_by(self, plain: Sequence[bytes], stretches: Sequence[bytes]) -> "Beginning":
        """Return it with more stretches; `plain` is what they were made of."""
        checksum, size = self.checksum, self.size
        for part in plain:
            checksum = zlib.crc32(part, checksum)
            size += len(part)
        return Beginning(b"".join((self.joined, *stretches)), checksum, size)


_MEMORY = 6
"""Of 1 to 9: what zlib may take beside its window. The pages get no smaller by more of it."""

_compressors: list["zlib._Compress"] = []
"""One for all: it takes 160 KiB, whose pages the kernel would have to give and take back for each stretch."""


def deflated(plain: bytes) -> bytes:
    """Return a stretch that can be joined with others."""
    # One that is left in the middle of a stretch, for want of memory, would go on with it in the next.
    compressor = (
        _compressors.pop() if _compressors else zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, _MEMORY)
    )
    # A full flush forgets what came before it.
    stretch = compressor.compress(plain) + compressor.flush(zlib.Z_FULL_FLUSH)
    _compressors.append(compressor)
    return stretch


def member(page: Beginning) -> bytes:
    """Return the page as one gzip member."""
    size = page.size & 0xFFFFFFFF
    return b"".join((page.joined, _LAST, page.checksum.to_bytes(4, "little"), size.to_bytes(4, "little")))
