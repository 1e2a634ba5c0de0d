"""The daemon with an agent of attribution that leaves soon and is soon back; run in place of the command.

`python -m tests.integration.hasty serve --web.listen-address=HOST:PORT --config.file=FILE`
"""

import argparse
import sys

from exporter import logs
from exporter.config import load_config, override
from exporter.serve import serve
from exporter.supervision.need import TERMS

HASTY = TERMS._replace(tick_seconds=0.1, quiet_seconds=0.3, recalled_seconds=0.3, away_seconds=2.0)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--web.listen-address", dest="address")
    parser.add_argument("--config.file", dest="file")
    options = parser.parse_args()
    config = override(load_config(options.file), {"web": {"listen_addresses": [options.address]}}, {})
    logs.configure(config.log.level, config.log.format)
    return serve(config, lambda: config, HASTY)


if __name__ == "__main__":
    sys.exit(main())
