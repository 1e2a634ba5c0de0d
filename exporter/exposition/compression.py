"""How a gzip page is put together from blocks that were compressed one by one.

Each block is a stretch of deflate data that ends on a byte boundary and refers to nothing outside, so stretches can be
joined. The page is a single gzip member around them: curl, browsers and several client libraries read only the
first of several members.
"""

import zlib
from collections.abc import Sequence

LEVEL = 3

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # deflate, no flags, no time, system not told
_LAST = b"\x03\x00"  # an empty final block


def deflated(plain: bytes) -> bytes:
    """Return a stretch that can be joined with others."""
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(plain) + compressor.flush(zlib.Z_SYNC_FLUSH)


def member(plain: Sequence[bytes], stretches: Sequence[bytes]) -> bytes:
    """Return one gzip member of the stretches; `plain` is what they were made of."""
    checksum = 0
    for part in plain:
        checksum = zlib.crc32(part, checksum)
    size = sum(map(len, plain)) & 0xFFFFFFFF
    trailer = checksum.to_bytes(4, "little") + size.to_bytes(4, "little")
    return b"".join((_HEADER, *stretches, _LAST, trailer))
