"""Where a measurement leaves its files, so that each is whole or not there, whatever ends us."""

import contextlib
import os
import time
from pathlib import Path
from typing import NamedTuple

SAMPLES, IDENTITY, ENERGY, TABLE, MARKS = "samples.csv", "identity.json", "energy.json", "energy.md", "marks.txt"
_OURS = (SAMPLES, IDENTITY, ENERGY, TABLE, MARKS)
_MOST_TRIES = 100


class OutputError(Exception):
    """Nothing can be written there: the text says why, in one line."""


class Place(NamedTuple):
    path: Path
    """Absolute."""
    made: bool
    """Whether the directory was not there before."""

    def discard(self) -> None:
        """Take away what was written, where nothing was measured after all."""
        for name in _OURS:
            with contextlib.suppress(OSError):
                (self.path / name).unlink()
        if self.made:
            with contextlib.suppress(OSError):
                self.path.rmdir()


def make_directory(wanted: str | None, now: float) -> Place:
    """Return a directory that takes a new measurement. Raises OutputError.

    `wanted`: made with what leads to it, or there already without a measurement in it; None: a new one is made in the
    working directory, named by the time, `now` in Unix seconds.
    """
    if wanted is None:
        return _new(f"gpu-exporter-measure-{time.strftime('%Y%m%dT%H%M%S', time.localtime(now))}")
    path = Path(wanted)
    try:
        made = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        held = [name for name in _OURS if (path / name).exists()]
    except (OSError, ValueError) as error:
        raise OutputError(f"{wanted}: {_reason(error)}") from None
    if held:
        raise OutputError(f"{wanted}: there is a measurement already ({held[0]}); name another directory")
    return Place(path.absolute(), made)


def replace(path: Path, content: bytes) -> None:
    """Write a file whose old content, if any, is there until all of the new is. Raises OutputError."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise OutputError(f"{path}: {_reason(error)}") from None


def _new(name: str) -> Place:
    for number in range(1, _MOST_TRIES):
        path = Path(name if number == 1 else f"{name}-{number}").absolute()
        try:
            path.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise OutputError(f"{path}: {_reason(error)}; name another directory by --output") from None
        return Place(path, made=True)
    raise OutputError(f"{name}: it is there already; name another directory by --output")


def _reason(error: Exception) -> str:
    return (os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "") or str(error)
