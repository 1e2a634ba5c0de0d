"""How exposed is the unit, alone and with each drop-in, and does docs/operations.md say so? systemd-analyze tells."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tools import unavailable
from tests.unit.test_energy_docs import tables

ROOT = Path(__file__).parents[2]
UNIT = "gpu-exporter.service"
MOST = 1.8
COLUMNS = ("drop-in", "for", "what it costs", "exposure")


def analyzed(directory: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    if shutil.which("systemd-analyze") is None:
        unavailable("systemd-analyze", "apt-get install systemd")
    return subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--root={directory}", "--no-pager", *words, UNIT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def exposure(directory: Path, drop_in: str = "") -> float:
    units = directory / "etc/systemd/system"
    units.mkdir(parents=True)
    shutil.copy(ROOT / "systemd" / UNIT, units)
    if drop_in:
        (units / f"{UNIT}.d").mkdir()
        shutil.copy(ROOT / "systemd/drop-ins" / drop_in, units / f"{UNIT}.d")
    said = analyzed(directory).stdout
    (score,) = re.findall(rf"exposure level for {re.escape(UNIT)}: ([0-9.]+)", said)
    return float(score)


def documented() -> dict[str, float]:
    (table,) = [t for t in tables((ROOT / "docs/operations.md").read_text()) if tuple(t[0]) == COLUMNS]
    return {row["drop-in"].strip("`"): float(row["exposure"]) for row in table}


def test_the_unit_is_below_the_threshold(tmp_path: Path) -> None:
    assert exposure(tmp_path) <= MOST
    assert analyzed(tmp_path, f"--threshold={MOST * 10:.0f}").returncode == 0
    assert analyzed(tmp_path, "--threshold=5").returncode != 0  # it is a threshold


@pytest.mark.parametrize("name", documented())
def test_the_exposure_is_the_documented_one(name: str, tmp_path: Path) -> None:
    drop_in = "" if name == "none" else name
    # Another release of systemd may weigh something anew.
    assert exposure(tmp_path, drop_in) == pytest.approx(documented()[name], abs=0.11)


def test_every_drop_in_is_documented() -> None:
    names = {path.name for path in (ROOT / "systemd/drop-ins").iterdir()}
    assert set(documented()) == {"none", *names}
