"""Does Prometheus take the configuration of the demonstration?"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration import prometheus

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("major", [2, 3])
def test_promtool_takes_the_configuration_with_its_rules(major: int, tmp_path: Path) -> None:
    tools = prometheus.find(major)
    shutil.copy(ROOT / "config/compose/prometheus.yml", tmp_path)
    shutil.copytree(ROOT / "config/prometheus", tmp_path / "rules")
    command = [tools.promtool, "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(list((tmp_path / 'rules').iterdir()))} rule files found" in done.stdout
