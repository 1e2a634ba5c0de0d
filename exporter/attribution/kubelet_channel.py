"""How the kubelet is asked: gRPC over a Unix socket, and every failure in a sentence."""

import contextlib
import os
import socket
import stat
import time
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Self
from urllib.parse import quote

from exporter.attribution.cluster import Name
from exporter.attribution.podresources import Pod, WireError, decode_get, decode_list, encode_get
from exporter.attribution.source import SourceError

_PROBE_SECONDS = 1.0
_MOST_ANSWER_BYTES = 16 * 2**20
"""gRPC's own limit of 4 MiB is reached by nodes with many pods: all of them are listed, with their CPUs and memory."""
_MOST_SOCKET_PATH = 107
_MOST_DOUBTS = 16
"""Pods asked for singly in one look."""
_MOST_REASON = 200
_SERVICE = "/v1.PodResourcesLister"
_OPTIONS = (
    ("grpc.max_receive_message_length", _MOST_ANSWER_BYTES),
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # no back-off that an earlier channel to the socket has earned
)


class Channel:
    """One channel to the kubelet, closed at the end of its `with`."""

    def __init__(self, path: str, deadline_seconds: float) -> None:
        """Load gRPC and open the channel. The deadline is for all questions together. Raises SourceError."""
        self._path = str(Path(path).absolute())
        self._deadline = deadline_seconds
        self._check_socket()
        self._grpc = _load_grpc()
        self._until = time.monotonic() + deadline_seconds
        self._channel = self._grpc.insecure_channel(f"unix:{quote(self._path)}", options=_OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def pods(self) -> tuple[Pod, ...]:
        """List all pods. Raises SourceError."""
        try:
            answer = self._call("List", b"")
        except self._grpc.RpcError as error:
            raise SourceError(self._reason(error)) from None
        try:
            pods = decode_list(answer)
        except WireError as error:
            raise SourceError(f"the kubelet's answer is not a list of PodResources v1: {error}") from None
        if not pods:
            raise SourceError("the kubelet lists no pod at all: it has just started, or runs none")
        return pods

    def ended(self, in_doubt: list[Pod]) -> frozenset[Name]:
        """Ask for pods one by one: those that are not there, or hold nothing any more, have ended.

        Kubelets before 1.27 cannot be asked so, and up to 1.33 need a feature gate: they tell nothing.
        """
        ended: set[Name] = set()
        for pod in in_doubt[:_MOST_DOUBTS]:
            try:
                answer = decode_get(self._call("Get", encode_get(pod.namespace, pod.name)))
            except WireError:
                break
            except self._grpc.RpcError as error:
                if error.code() is self._grpc.StatusCode.NOT_FOUND or "not found" in (error.details() or ""):
                    ended.add((pod.namespace, pod.name))
                    continue
                break
            if answer is not None and not answer.containers:
                ended.add((pod.namespace, pod.name))
        return frozenset(ended)

    def _check_socket(self) -> None:
        """Look before gRPC is loaded: a host that is no node of a cluster is not to pay its memory."""
        if len(os.fsencode(self._path)) > _MOST_SOCKET_PATH:
            raise SourceError(
                f"{self._path} is longer than the {_MOST_SOCKET_PATH} bytes that a socket's path may have"
            )
        try:
            mode = Path(self._path).stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            raise SourceError(
                f"{self._path} is not there: no kubelet runs here, or its directory is not mounted"
            ) from None
        except PermissionError:
            raise SourceError(_denied(self._path)) from None
        except OSError as error:
            raise SourceError(f"{self._path}: {error.strerror}") from None
        if not stat.S_ISSOCK(mode):
            raise SourceError(f"{self._path} is not a socket")

    def _call(self, method: str, request: bytes) -> bytes:
        # Without functions to encode and decode, gRPC takes and gives bytes.
        ask = self._channel.unary_unary(f"{_SERVICE}/{method}")
        answer: bytes = ask(request, timeout=max(0.0, self._until - time.monotonic()))
        return answer

    def _reason(self, error: Any) -> str:
        code, details = error.code(), " ".join((error.details() or "").split())[:_MOST_REASON]
        codes = self._grpc.StatusCode
        if code is codes.DEADLINE_EXCEEDED:
            return f"the kubelet did not answer within {self._deadline:g} s"
        if code is codes.UNIMPLEMENTED:
            return f"who serves {self._path} does not know PodResources v1, which kubelets do since 1.20"
        if code is codes.RESOURCE_EXHAUSTED and "larger than max" in details:
            return f"the kubelet's answer is larger than {_MOST_ANSWER_BYTES // 2**20} MiB"
        if code is codes.UNAVAILABLE:
            return self._unreachable() or f"who serves {self._path} does not speak gRPC, or hung up: {details}"
        return f"the kubelet refuses with {code.name}: {details}"

    def _unreachable(self) -> str | None:
        """Say in words of the system's what gRPC says in its own."""
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
            probe.settimeout(_PROBE_SECONDS)
            try:
                probe.connect(self._path)
            except PermissionError:
                return _denied(self._path)
            except ConnectionRefusedError:
                return f"nobody listens on {self._path}: the kubelet is not running"
            except OSError as error:
                return f"{self._path} cannot be connected to: {error.strerror or error}"
        return None


def _denied(path: str) -> str:
    return f"{path} may not be opened: it is root's, so run as root or with CAP_DAC_OVERRIDE"


def _load_grpc() -> ModuleType:
    """Import gRPC. Raises SourceError."""
    # It would write to standard error what the reason says already, and prepare for forks that do not happen.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        return import_module("grpc")  # here, since it takes 20 MB that only the node of a cluster is to pay
    except ImportError as error:
        raise SourceError(
            f"gRPC is not installed ({error}): install gpu-exporter with its extra, gpu-exporter[kubernetes]"
        ) from None
