"""The API server: names of this node's pods, whether they have ended, and the devices of DRA, asked at a slow pace."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode

from exporter.attribution.cluster import (
    AnswerError,
    ClaimItem,
    Cluster,
    Name,
    PodItem,
    SliceItem,
    claims_of,
    containers_by_id,
    decode,
    decode_list,
    devices_of,
    ended_pods,
    pods_by_uid,
    watched_of,
)
from exporter.attribution.https import Connection, HttpError, RefusedError
from exporter.attribution.ids import Attributes, DeviceName
from exporter.attribution.source import Findings, Question, SourceError

_T = TypeVar("_T")

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PERIOD_SECONDS = 30.0
"""Between two rounds of questions: some thousand nodes must be no burden to one API server."""
_LONGEST_PERIOD_SECONDS = 300.0
_DEADLINE_SECONDS = 10.0
_USABLE_SECONDS = 300.0
"""How long an old answer is better than none."""
_PAGE = 500
_MOST_PAGES = 20
_MOST_CLAIMS = 32
"""Asked for in one round."""
_HIGHEST_PORT = 65535
_GROUP = "/apis/resource.k8s.io"
_VERSIONS = ("v1", "v1beta2", "v1beta1")
_FORBIDDEN, _NOT_FOUND, _GONE = 403, 404, 410
_RETRY_SECONDS = 600.0
"""After so long what was missing or forbidden is asked for again."""


class ApiServerSource:
    """Asks with the service account of the pod that it runs in. Its findings hold names; `cluster` has the rest."""

    name = "api_server"

    def __init__(
        self,
        environment: Mapping[str, str] = os.environ,
        account: Path = SERVICE_ACCOUNT,
        *,
        clock: Callable[[], float] = time.monotonic,
        deadline_seconds: float = _DEADLINE_SECONDS,
    ) -> None:
        self._environment = environment
        self._account = account
        self._clock = clock
        self._deadline = deadline_seconds
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._cluster_at = 0.0
        self._next_at: float | None = None
        self._period = PERIOD_SECONDS
        self._reason = ""
        self._version = _VERSIONS[0]
        self._without_slices_until = 0.0
        self._without_claims_until = 0.0
        self._slices_trouble = self._claims_trouble = ""
        self._known_claims: dict[Name, frozenset[DeviceName]] = {}

    def look(self, question: Question) -> Findings:  # noqa: ARG002 -- pods do not depend on the GPUs
        """Ask when it is time, else repeat what was last found. Raises SourceError."""
        now = self._clock()
        if self._next_at is None or now >= self._next_at:
            try:
                cluster = self._ask()
            except SourceError as error:
                self._reason = str(error)
                self._period = min(self._period * 2, _LONGEST_PERIOD_SECONDS)
            else:
                self._reason, self._period = "", PERIOD_SECONDS
                with self._lock:
                    self._cluster, self._cluster_at = cluster, now
            # Nodes that lost the API server together must not come back together.
            self._next_at = now + self._period * random.uniform(0.9, 1.1)  # noqa: S311 -- no secret
        if self._reason:
            raise SourceError(self._reason)
        found = self.cluster() or Cluster()
        return Findings(pods=found.pods, containers=found.containers, trouble=found.trouble)

    def cluster(self) -> Cluster | None:
        """Return what was last found; None: nothing, or it is too old. Never waits; for other threads too."""
        with self._lock:
            usable = self._clock() - self._cluster_at <= _USABLE_SECONDS
            return self._cluster if usable else None

    def _ask(self) -> Cluster:
        host, port = (self._environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
        node = self._environment.get("NODE_NAME", "")
        if not host:
            raise SourceError("KUBERNETES_SERVICE_HOST is not set: this is no pod of a cluster")
        if not port.isdecimal() or not 0 < int(port[:6]) <= _HIGHEST_PORT:
            raise SourceError(f"KUBERNETES_SERVICE_PORT is no port: {port[:40]!r}")
        if not node:
            raise SourceError("NODE_NAME is not set: the pod is to get it from its field spec.nodeName")
        try:
            # It is renewed while we run, as is the authority.
            token = (self._account / "token").read_text().strip()
        except OSError as error:
            raise SourceError(f"{self._account / 'token'}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise SourceError(f"{self._account / 'token'} holds no token") from None
        try:
            with Connection(host, int(port), self._account / "ca.crt", token, self._deadline) as connection:
                return self._questions(connection, f"spec.nodeName={node}")
        except (HttpError, AnswerError) as error:
            raise SourceError(f"the API server {error}") from None

    def _questions(self, connection: Connection, selector: str) -> Cluster:
        pods = self._list(connection, "/api/v1/pods", selector, PodItem)
        devices = self._devices(connection, selector)
        claims = claims_of(pods) if devices else []
        return Cluster(
            pods=pods_by_uid(pods),
            containers=containers_by_id(pods),
            ended=ended_pods(pods),
            devices=devices,
            watched=self._watched(connection, claims),
            trouble="; ".join(filter(None, (self._slices_trouble, self._claims_trouble))),
        )

    def _list(self, connection: Connection, path: str, selector: str, form: type[_T]) -> list[_T]:
        """Return all pages of a list. A list whose next page has expired is begun anew, once."""
        for last in (False, True):
            try:
                return list(_pages(connection, path, selector, form))
            except RefusedError as error:
                if last or error.status != _GONE:
                    raise
        raise AssertionError  # the loop returns or raises

    def _devices(self, connection: Connection, selector: str) -> dict[DeviceName, Attributes]:
        """Return the devices of DRA. A cluster without it, or one that does not let us see it, has none."""
        if self._clock() < self._without_slices_until:
            return {}
        for version in (self._version, *(one for one in _VERSIONS if one != self._version)):
            try:
                items = self._list(connection, f"{_GROUP}/{version}/resourceslices", selector, SliceItem)
            except RefusedError as error:
                if error.status not in (_FORBIDDEN, _NOT_FOUND):
                    raise
                if error.status == _FORBIDDEN:
                    self._slices_trouble = f"devices of DRA cannot be placed: the API server {error}"
                    break
            else:
                self._version, self._slices_trouble = version, ""
                return devices_of(items)
        self._without_slices_until = self._clock() + _RETRY_SECONDS
        return {}

    def _watched(self, connection: Connection, claims: list[Name]) -> frozenset[tuple[Name, DeviceName]]:
        """Return what pods were given only to look at. Claims that could not be asked for yet are asked for later."""
        self._known_claims = {claim: known for claim, known in self._known_claims.items() if claim in set(claims)}
        unknown = [claim for claim in claims if claim not in self._known_claims]
        for namespace, name in unknown[:_MOST_CLAIMS] if self._clock() >= self._without_claims_until else ():
            path = (
                f"{_GROUP}/{self._version}/namespaces/{quote(namespace, safe='')}/resourceclaims/{quote(name, safe='')}"
            )
            try:
                watched = watched_of(decode(connection.get(path), ClaimItem))
            except RefusedError as error:
                if error.status == _NOT_FOUND:
                    continue
                if error.status != _FORBIDDEN:
                    raise
                self._claims_trouble = f"claims with admin access are taken for work: the API server {error}"
                self._without_claims_until = self._clock() + _RETRY_SECONDS
                break
            self._claims_trouble = ""
            if watched is not None:
                self._known_claims[namespace, name] = watched
        return frozenset((claim, device) for claim, devices in self._known_claims.items() for device in devices)


def _pages(connection: Connection, path: str, selector: str, form: type[_T]) -> Iterator[_T]:
    # Version 0: any state that the server has in memory, so that a list of one node is not read from the database.
    query = {"fieldSelector": selector, "limit": str(_PAGE), "resourceVersion": "0"}
    for _ in range(_MOST_PAGES):
        items, more = decode_list(connection.get(f"{path}?{urlencode(query)}"), form)
        yield from items
        if not more:
            return
        query = {"fieldSelector": selector, "limit": str(_PAGE), "continue": more}
    raise AnswerError(f"lists more than {_MOST_PAGES * _PAGE} objects of {path}")
