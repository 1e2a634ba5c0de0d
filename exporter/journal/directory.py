"""One directory that belongs to this daemon alone: a file in it is replaced, read, put aside or taken away.

Everything is done relative to the open directory, so that it stays the one that is locked.
"""

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from exporter.journal.format import MAX_BYTES, JournalError

LOCK = "journal.lock"
ASIDE = ".refused"


class InUseError(OSError):
    """Another instance has the directory."""


class Directory:
    def __init__(self, path: Path) -> None:
        """Lock the directory, which is made if only its last part is missing. Raises OSError."""
        self.path = path
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._lock = -1
        try:
            self._lock = self._open(LOCK, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InUseError(errno.EBUSY, "another instance uses it") from None
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the directory."""
        for descriptor in (self._directory, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._directory = self._lock = -1

    @property
    def current(self) -> bool:
        """Whether the path still leads to the directory that is locked."""
        try:
            there = self.path.stat()
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self._directory))

    def replace(self, name: str, data: bytes, *, synced: bool = False) -> int:
        """Put a file in the place of the one before, as a whole or not at all. Returns its open descriptor."""
        temporary = f"{name}.new"
        self._unlink(temporary)
        descriptor = self._open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if synced:
                os.fsync(descriptor)
            os.replace(temporary, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            if synced:
                self.sync()
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                self._unlink(temporary)  # it may be what has filled the disk
            raise
        return descriptor

    def read(self, name: str) -> bytes | None:
        """Return a file of ours; None: there is none. Raises JournalError for what is not ours or cannot be read."""
        try:
            # Not blocking: it may be a pipe.
            descriptor = self._open(name, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            link = error.errno == errno.ELOOP
            raise JournalError("is a symbolic link" if link else f"cannot be read: {error.strerror}") from None
        with open(descriptor, "rb") as file:  # noqa: PTH123 -- of a descriptor
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise JournalError("is not a regular file")
            if found.st_uid != os.geteuid():
                raise JournalError(f"belongs to user {found.st_uid}, and this is user {os.geteuid()}")
            if found.st_size > MAX_BYTES:
                raise JournalError(f"is larger than {MAX_BYTES >> 20} MiB")
            try:
                return file.read(MAX_BYTES + 1)
            except OSError as error:
                raise JournalError(f"cannot be read: {error.strerror}") from None

    def put_aside(self, name: str) -> Path:
        """Rename a file so that it is not found again but can be looked at; returns its new path. Raises OSError."""
        os.replace(name, name + ASIDE, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        return self.path / (name + ASIDE)

    def remove(self, name: str, *, synced: bool = False) -> None:
        """Take a file away, or make it empty where that is not allowed. Raises OSError if neither can be done."""
        try:
            self._unlink(name)
        except OSError:
            self._empty(name, synced=synced)
        if synced:
            self.sync()

    def sync(self) -> None:
        """Return when what happened to the names in the directory would survive a loss of power."""
        os.fsync(self._directory)

    def _empty(self, name: str, *, synced: bool) -> None:
        try:
            descriptor = self._open(name, os.O_WRONLY)
        except FileNotFoundError:  # a file system that is read-only does not even look whether it is there
            return
        try:
            os.ftruncate(descriptor, 0)
            if synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._directory)

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._directory)
