"""Which sources are asked, by the configuration: the more trusted ones first."""

import os
from collections.abc import Callable
from pathlib import Path

from exporter.attribution.apiserver import ApiServerSource
from exporter.attribution.cluster import Cluster
from exporter.attribution.job_files import JobFiles
from exporter.attribution.kubelet import KubeletSource, no_cluster
from exporter.attribution.pod_logs import PodLogs
from exporter.attribution.slurm import SlurmEnvironment
from exporter.attribution.source import Findings, NothingToAskError, Question, Source
from exporter.config import AttributionConfig

_DEFAULTS = AttributionConfig()


class _Kubelet:
    """The kubelet of a host that may have none: gRPC is not even loaded until there is a socket."""

    name = KubeletSource.name
    allocates = KubeletSource.allocates

    def __init__(self, path: str, kubelet: KubeletSource) -> None:
        self._path = path
        self._kubelet = kubelet

    def look(self, question: Question) -> Findings:
        try:
            os.stat(self._path)  # noqa: PTH116 -- for the error that it raises
        except FileNotFoundError:
            raise NothingToAskError from None
        except OSError:  # it is there, and the kubelet's source says what is wrong with it
            pass
        return self._kubelet.look(question)

    def close(self) -> None:
        self._kubelet.close()


def sources(config: AttributionConfig, root: str = "/") -> list[Source]:
    """Return the sources other than proc. Nothing is opened or asked yet."""
    found: list[Source] = []
    cluster: Callable[[], Cluster | None] = no_cluster
    api_server = ApiServerSource() if config.api_server else None
    if api_server is not None:
        cluster = api_server.cluster
    if (socket := config.kubelet_socket) is not None:
        kubelet = KubeletSource(socket, config.kubelet_resources, root=Path(root), cluster=cluster)
        found.append(_Kubelet(socket, kubelet) if socket == _DEFAULTS.kubelet_socket else kubelet)
    if config.slurm_environment:
        found.append(SlurmEnvironment(config.proc, root))
    if config.job_files is not None:
        found.append(JobFiles(config.job_files))
    if api_server is not None:
        found.append(api_server)
    if config.pod_logs is not None:
        found.append(PodLogs(config.pod_logs, expected=config.pod_logs != _DEFAULTS.pod_logs))
    return found
