"""The dashboards of config/grafana as code: `python -m tests.grafana.boards` writes them.

Classic JSON, which Grafana 10 and later import, provision and find through the sidecar alike.
"""

import json
from pathlib import Path
from typing import Any

from tests.grafana.boards import energy, exporter, fleet, gpu, inference, node

DIRECTORY = Path(__file__).parents[3] / "config/grafana"


def dashboards() -> dict[str, dict[str, Any]]:
    """Return each dashboard by the stem of its file."""
    made = (board.dashboard() for board in (fleet, node, gpu, energy, inference, exporter))
    return {board["uid"]: board for board in made}


def text(board: dict[str, Any]) -> str:
    """Return what the file of a dashboard holds."""
    return json.dumps(board, indent=1, ensure_ascii=False) + "\n"
