"""`python -m exporter` is the command `gpu-exporter`."""

import sys

from exporter import early


def main() -> int:
    """Run the command and return its exit code; 130: interrupted before there was anything to end in order."""
    if sys.argv[1:2] != ["measure"]:  # to which they mean the end, and not a clean one, as long as nothing is measured
        early.hold()
    try:
        # Most of a start is spent here, with signals held.
        from exporter import lean  # noqa: PLC0415 -- as above

        lean.postpone()
        from exporter.cli import main as command  # noqa: PLC0415 -- as above

        return command()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
