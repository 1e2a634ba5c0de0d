"""Which sources are asked, by the configuration: the more trusted ones first."""

from collections.abc import Callable
from pathlib import Path

from exporter.attribution.cluster import Cluster
from exporter.attribution.job_files import JobFiles
from exporter.attribution.kubelet import KubeletSource, no_cluster
from exporter.attribution.pod_logs import PodLogs
from exporter.attribution.slurm import SlurmEnvironment
from exporter.attribution.source import Source
from exporter.settings import AttributionConfig

_DEFAULTS = AttributionConfig()


def sources(config: AttributionConfig, root: str = "/") -> list[Source]:
    """Return the sources other than proc. Nothing is opened or asked yet.

    What lies where it lies by default need not be there: the host may be no node of Kubernetes.
    """
    found: list[Source] = []
    names: list[Source] = []
    cluster: Callable[[], Cluster | None] = no_cluster
    if config.api_server:
        # It brings TLS and HTTP into memory.
        from exporter.attribution.apiserver import ApiServerSource  # noqa: PLC0415 -- for those who ask for it

        api_server = ApiServerSource()
        cluster = api_server.cluster
        names.append(api_server)
    if (socket := config.kubelet_socket) is not None:
        expected = socket != _DEFAULTS.kubelet_socket
        found.append(
            KubeletSource(socket, config.kubelet_resources, root=Path(root), cluster=cluster, expected=expected)
        )
    if config.slurm_environment:
        found.append(SlurmEnvironment(config.proc, root))
    if config.job_files is not None:
        found.append(JobFiles(config.job_files))
    if config.pod_logs is not None:
        names.append(PodLogs(config.pod_logs, expected=config.pod_logs != _DEFAULTS.pod_logs))
    return found + names
