"""Names of pods and containers, from the directories in which the kubelet keeps their logs.

It makes /var/log/pods/NAMESPACE_POD_UID/CONTAINER, and beside it /var/log/containers with a link
POD_NAMESPACE_CONTAINER-ID.log for each container. Nothing in them is opened.
"""

import itertools
import os
import re
from collections.abc import Iterator

from exporter.attribution.source import Findings, NothingToAskError, Pod, Question, SourceError

MOST_ENTRIES = 8192
_MOST_CONTAINERS = 256
"""Of one pod."""
_POD = re.compile(r"([a-z0-9.-]{1,253})_([a-z0-9.-]{1,253})_([0-9a-f-]{32,36})")
_CONTAINER_LOG = re.compile(r"[a-z0-9.-]{1,253}_[a-z0-9.-]{1,253}_([a-z0-9-]{1,63})-([0-9a-f]{64})\.log")


class PodLogs:
    """The source "pod_logs"."""

    name = "pod_logs"

    def __init__(self, directory: str, *, expected: bool) -> None:
        """Take the directory; `expected`: somebody said that it is there."""
        self._directory = directory.rstrip("/") or "/"
        self._beside = f"{os.path.dirname(self._directory)}/containers"  # noqa: PTH120 -- as scandir has it: text
        self._expected = expected
        self._listed: dict[str, tuple[int, tuple[str, ...]]] = {}
        """Containers by directory, with the time of the directory's last change."""

    def look(self, question: Question) -> Findings:  # noqa: ARG002 -- the names do not depend on what is asked
        pods: dict[str, Pod] = {}
        listed: dict[str, tuple[int, tuple[str, ...]]] = {}
        left_out = False
        try:
            for position, entry in enumerate(_entries(self._directory)):
                left_out = position == MOST_ENTRIES
                if not left_out and (match := _POD.fullmatch(entry.name)):
                    listed[entry.name] = self._containers(entry)
                    pods[match[3]] = Pod(match[1], match[2], listed[entry.name][1])
        except FileNotFoundError:
            if not self._expected:
                raise NothingToAskError from None
            raise SourceError(f"{self._directory} does not exist") from None
        except OSError as error:
            raise SourceError(f"{self._directory}: {error.strerror}") from None
        self._listed = listed
        trouble = f"{self._directory} has more than {MOST_ENTRIES} entries: the rest is left out" if left_out else ""
        return Findings(pods=pods, containers=self._ids(), trouble=trouble)

    def _containers(self, pod: os.DirEntry[str]) -> tuple[int, tuple[str, ...]]:
        try:
            changed = pod.stat(follow_symlinks=False).st_mtime_ns
            if (known := self._listed.get(pod.name)) and known[0] == changed:
                return known
            names = (entry.name for entry in _entries(pod.path) if entry.is_dir(follow_symlinks=False))
            return changed, tuple(sorted(itertools.islice(names, _MOST_CONTAINERS)))
        except OSError:  # removed, or only its name may be seen
            return 0, ()

    def _ids(self) -> dict[str, str]:
        try:
            matches = (_CONTAINER_LOG.fullmatch(entry.name) for entry in _entries(self._beside))
            return {match[2]: match[1] for match in matches if match}
        except OSError:  # not mounted into our container: names of single containers are known all the same
            return {}


def _entries(directory: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        yield from itertools.islice(entries, MOST_ENTRIES + 1)
