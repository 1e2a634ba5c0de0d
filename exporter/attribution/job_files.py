"""Which jobs were given which GPU, from files that a prolog of the batch system writes and its epilog clears.

One file per GPU, in either format: dcgm-exporter's, named INDEX or INDEX.GPU_INSTANCE, with one job id a line and empty
while the GPU is idle; or that of AMD's exporter, named INDEX, a JSON object with the variables of one Slurm job.
"""

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from exporter.attribution import workloads
from exporter.attribution.files import UnfitError, read_regular
from exporter.attribution.ids import Place
from exporter.attribution.ordinals import Ordinals
from exporter.attribution.source import Findings, Grant, Question, SourceError
from exporter.model import Workload

MOST_FILES = 1024
_MOST_ENTRIES = 65_536
"""Of the directory: it may be one where jobs leave their output too."""
_MOST_BYTES = 64 * 1024
_MOST_JOBS = 256
"""Of one file."""
_HALF_WRITTEN_SECONDS = 30.0
"""For so long a file that cannot be understood is taken to be in the middle of being written."""
_NAME = re.compile(r"([0-9]{1,4})(?:\.([0-9]{1,4}))?")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+@=,\[\]%-]{0,127}")


class _AmdJob(msgspec.Struct):
    job: str | int = msgspec.field(name="SLURM_JOB_ID", default="")
    user: str = msgspec.field(name="SLURM_JOB_USER", default="")
    partition: str = msgspec.field(name="SLURM_JOB_PARTITION", default="")


class _Content(NamedTuple):
    jobs: tuple[Workload, ...]
    vendor: str
    """Whose exporter the format is of."""
    read_at: float


class JobFiles:
    """The source "job_files"."""

    name = "job_files"

    def __init__(self, directory: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._understood: dict[str, _Content] = {}

    def look(self, question: Question) -> Findings:
        ordinals = Ordinals(question)
        grants: dict[Grant, None] = {}
        understood: dict[str, _Content] = {}
        troubles: list[str] = []
        unplaced = 0
        for name, match, directory in self._files(troubles):
            content = self._content(name, directory, troubles)
            if content is None:
                continue
            understood[name] = content
            places = _places(match, content, ordinals)
            unplaced += bool(content.jobs and not places)
            grants |= {
                Grant(workload=job, device=device, partition=partition): None
                for device, partition in places
                for job in content.jobs
            }
        self._understood = understood
        if troubles and not understood:
            raise SourceError(troubles[0])
        return Findings(grants=tuple(grants), unplaced_devices=unplaced, trouble=troubles[0] if troubles else "")

    def _files(self, troubles: list[str]) -> Iterator[tuple[str, re.Match[str], int]]:
        """Yield names that are those of a GPU's file, with the directory, which is open meanwhile.

        Those of the first GPUs, where there are too many; that is added to `troubles`.
        """
        try:
            directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SourceError(f"{self._directory}: {error.strerror}") from None
        try:
            with os.scandir(directory) as entries:
                names = [entry.name for entry in itertools.islice(entries, _MOST_ENTRIES)]
            found = sorted(filter(None, map(_NAME.fullmatch, names)), key=_position)
            if len(found) > MOST_FILES or len(names) == _MOST_ENTRIES:
                troubles.append(f"{self._directory} has too many files: those of the first {MOST_FILES} GPUs are read")
            for match in found[:MOST_FILES]:
                yield match[0], match, directory
        except OSError as error:
            raise SourceError(f"{self._directory}: {error.strerror}") from None
        finally:
            os.close(directory)

    def _content(self, name: str, directory: int, troubles: list[str]) -> _Content | None:
        """Return what the file says; None: nothing, and why was added to `troubles`, or it has just been removed."""
        now = self._clock()
        try:
            return _parsed(read_regular(name, _MOST_BYTES, directory), now)
        except FileNotFoundError:
            return None
        except UnfitError as error:
            troubles.append(f"{self._directory}/{name} {error}")
        except OSError as error:
            troubles.append(f"{self._directory}/{name}: {error.strerror}")
        except (msgspec.MsgspecError, ValueError):
            known = self._understood.get(name)
            if known is not None and now - known.read_at <= _HALF_WRITTEN_SECONDS:
                return known
            troubles.append(f"{self._directory}/{name} has neither job ids nor AMD's JSON")
        return None


def _parsed(data: bytes, now: float) -> _Content:
    """Return the jobs of a file. Raises ValueError or msgspec.MsgspecError where it has neither format."""
    text = data.decode("utf-8").strip()
    if text.startswith("{"):
        amd = msgspec.json.decode(text, type=_AmdJob)
        job = str(amd.job).strip()
        user, partition = (value if _JOB.fullmatch(value) else "" for value in (amd.user, amd.partition))
        jobs = [workloads.slurm(_checked(job), user=user, partition=partition)] if job else []
        return _Content(tuple(jobs), "amd", now)
    lines = dict.fromkeys(filter(None, map(str.strip, text.splitlines())))
    return _Content(tuple(workloads.slurm(_checked(job)) for job in itertools.islice(lines, _MOST_JOBS)), "nvidia", now)


def _position(name: re.Match[str]) -> tuple[int, int, str]:
    return int(name[1]), int(name[2] or -1), name[0]


def _checked(job: str) -> str:
    if not _JOB.fullmatch(job):
        raise ValueError("not a job id")
    return job


def _places(match: re.Match[str], content: _Content, ordinals: Ordinals) -> list[Place]:
    number = int(match[1])
    if match[2] is not None:
        return ordinals.gpu_instance(number, int(match[2]))
    place = ordinals.gpu(number, content.vendor)
    return [] if place is None else [place]
