"""Which GPUs Slurm gave to which job, from the environment of the job's processes.

Slurm itself tells nobody on the node. SLURM_JOB_GPUS is what the job was given; SLURM_STEP_GPUS, of a step alone, is
taken where a job was begun without the other. Jobs that share a GPU by shards or MPS have the same variables.
"""

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from exporter.attribution import workloads
from exporter.attribution.ids import Place
from exporter.attribution.ordinals import Ordinals
from exporter.attribution.source import Findings, Grant, Question, SourceError
from exporter.kernel import read_all
from exporter.model import Workload

_MOST_ENVIRONMENT_BYTES = 256 * 1024
_MOST_JOBS = 1024
_MOST_DIRECTORIES = 2048
"""In one directory."""
_MOST_PROCESSES = 16
"""Looked at in one job."""
_MOST_GPUS = 64
"""Of one job."""
_V1_CONTROLLERS = ("cpuset", "memory", "freezer", "devices", "cpuacct", "cpu,cpuacct")
_JOB = re.compile(r"job_([0-9]{1,10})")
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,127}")
_DESCRIPTIONS = ("SLURM_JOB_USER", "SLURM_JOB_ACCOUNT", "SLURM_JOB_PARTITION")
_WANTED = frozenset(
    ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES", *_DESCRIPTIONS)
)
_NEEDS_CAPABILITY = "the environment of a job's processes needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"


class _Job(NamedTuple):
    workload: Workload
    numbers: tuple[int, ...]
    uuids: tuple[str, ...]
    """Where the job was told uuids: of MIG instances there are no other names."""
    whole: bool
    """Nothing is to be added to it as long as the job lives."""


class SlurmEnvironment:
    """The source "slurm"."""

    name = "slurm"

    def __init__(self, proc: str, root: str = "/") -> None:
        """Take where the host's proc is mounted, and below which root its control groups are."""
        self._proc = proc.rstrip("/") or "/"
        self._cgroups = f"{root.rstrip('/')}/sys/fs/cgroup"
        self._known: dict[str, _Job] = {}

    def look(self, question: Question) -> Findings:
        known: dict[str, _Job] = {}
        denied = False
        for number, directories in _jobs(self._cgroups).items():
            job = self._known.get(number)
            if job is None or not job.whole:
                job, refused = self._ask(number, directories)
                denied = denied or refused
            if job is not None:
                known[number] = job
        self._known = known
        if denied and not known:
            raise SourceError(_NEEDS_CAPABILITY)
        places = _Places(question)
        grants = {
            Grant(workload=job.workload, device=device, partition=partition): None
            for job in known.values()
            for device, partition in places.of(job)
        }
        return Findings(
            grants=tuple(grants), unplaced_devices=places.unplaced, trouble=_NEEDS_CAPABILITY if denied else ""
        )

    def _ask(self, number: str, directories: list[str]) -> tuple[_Job | None, bool]:
        """Return what the processes of a job tell, and whether some of them may not be read."""
        found: _Job | None = None
        denied = False
        for pid in itertools.islice(_pids(directories), _MOST_PROCESSES):
            try:
                if read_all(f"{self._proc}/{pid}/comm").strip() == b"slurmstepd":
                    continue  # it has the environment of slurmd
                variables = _parsed(read_all(f"{self._proc}/{pid}/environ", _MOST_ENVIRONMENT_BYTES))
            except PermissionError:
                denied = True
                continue
            except OSError:  # it has ended
                continue
            if number not in (variables.get("SLURM_JOB_ID"), variables.get("SLURM_JOBID")):
                continue
            if "SLURM_JOB_GPUS" in variables:
                return _job(number, variables, variables["SLURM_JOB_GPUS"], whole=True), denied
            if variables.get("SLURM_STEP_GPUS"):
                step = _job(number, variables, variables["SLURM_STEP_GPUS"], whole=False)
                found = step if found is None else _both(found, step)
        # What another step may tell is lost where it may not be read.
        return found, denied and found is None


class _Places:
    def __init__(self, question: Question) -> None:
        # Slurm numbers NVIDIA's GPUs by their device files.
        self._ordinals = Ordinals(question, by="minor")
        self._uuids: dict[str, Place] = {}
        for held in question.held:
            self._uuids[held.device.key] = Place(held.device.key)
            for partition in held.partitions:
                if partition.uuid is not None:
                    self._uuids[partition.uuid] = Place(held.device.key, partition.partition)
        vendors = {held.device.vendor for held in question.held}
        self._vendor = vendors.pop() if len(vendors) == 1 else None
        self.unplaced = 0

    def of(self, job: _Job) -> list[Place]:
        if job.uuids:
            found = [self._uuids.get(uuid) for uuid in job.uuids]
        else:
            found = [self._whole(number) for number in job.numbers]
        self.unplaced += found.count(None)
        return [place for place in found if place is not None]

    def _whole(self, number: int) -> Place | None:
        if self._vendor is None:
            return None  # GPUs of both vendors have the number
        place = self._ordinals.gpu(number, self._vendor)
        # With MIG, Slurm counts instances, in an order of its own.
        cut = place is not None and place.partition is None and self._ordinals.partitioned(place.device)
        return None if cut else place


def _jobs(cgroups: str) -> dict[str, list[str]]:
    """Return the directories of all jobs by their number, of whichever version of control groups Slurm uses."""
    slices = (f"{cgroups}/{name}" for name in _directories(cgroups) if name.endswith(".slice"))
    parents = [f"{at}/{name}" for at in slices for name in _directories(at) if name.endswith("slurmstepd.scope")]
    for controller in _V1_CONTROLLERS:
        base = f"{cgroups}/{controller}"
        for name in _directories(base):
            if name == "slurm" or name.startswith("slurm_"):
                users = (user for user in _directories(f"{base}/{name}") if user.startswith("uid_"))
                parents += [f"{base}/{name}/{user}" for user in users]
    found: dict[str, list[str]] = {}
    for parent in parents:
        for name in _directories(parent):
            if (match := _JOB.fullmatch(name)) and (match[1] in found or len(found) < _MOST_JOBS):
                found.setdefault(match[1], []).append(f"{parent}/{name}")
    return found


def _pids(directories: list[str]) -> Iterator[int]:
    """Yield pids of a job's steps. The extern step is left out: it holds a `sleep`, and what logged in from outside."""
    seen: set[int] = set()
    for directory in directories:
        for step in _directories(directory):
            if step.startswith("step_") and step != "step_extern":
                for pid in _pids_below(f"{directory}/{step}", depth=3):
                    if pid > 0 and pid not in seen:  # 0: of another pid namespace
                        seen.add(pid)
                        yield pid


def _pids_below(directory: str, depth: int) -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError):  # removed meanwhile, or the group is of threads
        yield from map(int, read_all(f"{directory}/cgroup.procs").split())
    if depth:
        for name in _directories(directory):
            if name != "slurm":  # the step's slurmstepd
                yield from _pids_below(f"{directory}/{name}", depth - 1)


def _directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            names = (entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            return sorted(itertools.islice(names, _MOST_DIRECTORIES))
    except OSError:
        return []


def _parsed(environment: bytes) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for entry in environment.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and (text := name.decode("ascii", "replace")) in _WANTED:
            found.setdefault(text, value.decode("utf-8", "replace"))
    return found


def _job(number: str, variables: Mapping[str, str], gpus: str, *, whole: bool) -> _Job:
    user, account, partition = (
        value if _WORD.fullmatch(value := variables.get(name, "")) else "" for name in _DESCRIPTIONS
    )
    visible = variables.get("CUDA_VISIBLE_DEVICES", "").split(",")
    uuids = tuple(name for name in visible if name.startswith(("MIG-", "GPU-")))[:_MOST_GPUS]
    return _Job(
        workloads.slurm(number, user=user, account=account, partition=partition),
        _numbers(gpus),
        uuids if len(uuids) == len(visible) else (),
        whole,
    )


def _numbers(gpus: str) -> tuple[int, ...]:
    """Return the numbers of a list such as 0,2-3."""
    found: dict[int, None] = {}
    for piece in gpus.split(",")[:_MOST_GPUS]:
        if match := _RANGE.fullmatch(piece.strip()):
            first, last = int(match[1]), int(match[2] or match[1])
            found |= dict.fromkeys(range(first, min(last, first + _MOST_GPUS) + 1))
    return tuple(found)[:_MOST_GPUS]


def _both(one: _Job, other: _Job) -> _Job:
    return _Job(
        one.workload,
        tuple(dict.fromkeys(one.numbers + other.numbers))[:_MOST_GPUS],
        tuple(dict.fromkeys(one.uuids + other.uuids))[:_MOST_GPUS],
        whole=False,
    )
