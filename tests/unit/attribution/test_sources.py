"""Which sources a configuration gives, and what they bring into memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.attribution.source import Question, SourceError
from exporter.attribution.sources import sources
from exporter.config import AttributionConfig

ROOT = Path(__file__).parents[3]


def names(**options: object) -> list[str]:
    return [source.name for source in sources(AttributionConfig(**options))]  # type: ignore[arg-type] -- as in a file


def test_sources_by_default() -> None:
    assert names() == ["kubelet", "pod_logs"]


def test_sources_that_are_asked_for() -> None:
    assert names(
        kubelet_socket=None, pod_logs=None, job_files="/run/jobs", slurm_environment=True, api_server=True
    ) == ["slurm", "job_files", "api_server"]


@pytest.mark.parametrize("name", ["kubelet_socket", "pod_logs"])
def test_path_that_somebody_named_is_missed(tmp_path: Path, name: str) -> None:
    others = {"kubelet_socket": None, "pod_logs": None}
    (source,) = sources(AttributionConfig(**{**others, name: str(tmp_path / "missing/path")}))  # type: ignore[arg-type] -- as in a file
    with pytest.raises(SourceError):
        source.look(Question())


def test_nothing_is_loaded_that_nobody_asks_for() -> None:
    code = (
        "import sys; from exporter.attribution import agent; from exporter.config import AttributionConfig;"
        "agent.sources(AttributionConfig());"
        "print([name for name in ('grpc', 'ssl', 'http.client', 'asyncio', 'pynvml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
