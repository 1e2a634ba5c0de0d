"""Draws the dashboards from what a real Prometheus answers, to be looked at without a Grafana.

    python -m tests.grafana.pictures collect ANSWERS.json --seconds 420
    python -m tests.grafana.pictures draw ANSWERS.json DIRECTORY [--board NAME ...]

The first starts the site of the tests, lets it run, and keeps the answers; the second draws them and needs matplotlib.
What Grafana would show is drawn in its places: titles, units, colours of thresholds, legends; not its looks.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.grafana.answers import Window, ask
from tests.grafana.queries import FILES, defaults, load, panels, variables
from tests.grafana.site import MIXED, SERVING, Site, site

CHOSEN = {"gpu-exporter-node": {"instance": MIXED}, "gpu-exporter-inference": {"instance": SERVING}}
SHOWN_GPUS = {"gpu-exporter-gpu": "sim0", "gpu-exporter-gpu-amd": "sim8"}
"""One of each vendor, of the mixed node, each as a picture of its own."""
POINTS = 200
RATE_SECONDS = 30.0
"""Of `$__rate_interval`: as many scrapes as make lines smooth on a busy machine."""


def _values(running: Site, board: dict[str, Any], name: str) -> dict[str, str]:
    values = defaults(board) | CHOSEN.get(name, {})
    if "uuid" in variables(board):
        gpu = SHOWN_GPUS[name]
        ((labels, _),) = running.server.query(f'gpu_info{{instance="{MIXED}", gpu="{gpu}"}}')
        values["uuid"] = labels["uuid"]
    return values


def collect(path: Path, seconds: float) -> None:
    answers: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as directory, site(Path(directory)) as running:
        time.sleep(seconds)
        end = time.time() - 1
        step = max(1.0, round(seconds / POINTS))
        window = Window(end - seconds + 5, end, step=step, interval=RATE_SECONDS)
        for file in FILES:
            board = load(file)
            names = [name for name in SHOWN_GPUS if name.startswith(file.stem)] or [file.stem]
            for name in names:
                values = _values(running, board, name)
                answers[name] = {
                    "window": window,
                    "values": values,
                    "panels": {
                        str(panel["id"]): {
                            t["refId"]: ask(running.server, t["expr"], window, values, instant=t["instant"])
                            for t in panel["targets"]
                        }
                        for panel in panels(board)
                    },
                }
    path.write_text(json.dumps(answers))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.grafana.pictures")
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("answers", type=Path)
    collecting.add_argument("--seconds", type=float, default=420.0)
    drawing = commands.add_parser("draw")
    drawing.add_argument("answers", type=Path)
    drawing.add_argument("directory", type=Path)
    drawing.add_argument("--board", action="append", default=[])
    options = parser.parse_args(arguments)
    if options.command == "collect":
        collect(options.answers, options.seconds)
        return
    from tests.grafana.drawing import draw  # noqa: PLC0415 -- needs matplotlib, which collecting does not

    for name, answers in json.loads(options.answers.read_text()).items():
        if not options.board or name in options.board:
            draw(name.removesuffix("-amd"), answers, options.directory / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
