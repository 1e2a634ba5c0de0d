"""`python -m exporter` is the command `gpu-exporter`."""

import sys

from exporter.cli import main

if __name__ == "__main__":
    sys.exit(main())
