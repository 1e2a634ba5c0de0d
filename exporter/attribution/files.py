"""How files of others are read: never waiting for one, and never more of it than was agreed."""

import os
import stat


class UnfitError(OSError):
    """It is there and may be opened, but it is not a file of the kind that is expected."""


def read_regular(path: str, limit: int, directory: int | None = None) -> bytes:
    """Return all of a regular file that others write, below an open directory if one is given.

    Raises OSError; UnfitError for symbolic links, which may lead to what was never meant to be shown, for pipes and
    devices, which may never answer, and for more than `limit` bytes.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
    if stat.S_ISLNK(os.stat(path, dir_fd=directory, follow_symlinks=False).st_mode):
        raise UnfitError("is a symbolic link")
    descriptor = os.open(path, flags, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnfitError("is not a regular file")
        data = b""
        while len(data) <= limit and (piece := os.read(descriptor, limit + 1 - len(data))):
            data += piece
        if len(data) > limit:
            raise UnfitError(f"is larger than {limit} bytes")
        return data
    finally:
        os.close(descriptor)
