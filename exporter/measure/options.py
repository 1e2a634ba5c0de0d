"""The options of `measure`, and which of them go together. Imports little: every command parses its arguments."""

import argparse
import math
import re
from collections.abc import Callable


def add_options(measure: argparse.ArgumentParser) -> None:
    """Add those that no other command has."""
    measure.add_argument(
        "--gpus",
        action="append",
        metavar="NAME",
        help="measure these alone: label (nvidia0), UUID, PCI address, or the number in the vendor's tools; "
        "with commas, or repeated",
    )
    measure.add_argument(
        "--interval",
        type=_number_between(0.05, 60.0),
        metavar="SECONDS",
        help="between readings; default 0.093; of a log, what it was written at",
    )
    measure.add_argument(
        "--repeat", type=_count_between(1, 1000), default=1, metavar="N", help="run the command so often"
    )
    measure.add_argument(
        "--idle-baseline",
        type=_number_between(0.0, 3600.0),
        default=0.0,
        metavar="SECONDS",
        help="measure idle GPUs first, and tell the joules above that",
    )
    tokens = measure.add_mutually_exclusive_group()
    tokens.add_argument(
        "--tokens", type=_number_between(0.0, 1e15), metavar="N", help="output tokens of one run, for J/token"
    )
    tokens.add_argument(
        "--tokens-from",
        type=_pattern,
        metavar="REGEX",
        help="add up the numbers that its first group finds in the lines that the command prints",
    )
    measure.add_argument(
        "--queries", type=_number_between(0.0, 1e15), metavar="N", help="queries of one run, for J/query"
    )
    measure.add_argument(
        "--output", metavar="DIR", help="directory for the results; default a new one in the working directory"
    )
    measure.add_argument("--markdown", action="store_true", help="write a table in Markdown as well")
    measure.add_argument(
        "--from-log",
        metavar="FILE",
        help="instead of running a command: CSV of nvidia-smi, amd-smi, or a samples.csv",
    )
    for edge in ("start", "end"):
        measure.add_argument(
            f"--{edge}",
            metavar="TIME",
            help=f"{edge} of the window in the log: Unix seconds, or ISO 8601; default: of all of it",
        )


def misfit(options: argparse.Namespace) -> str | None:
    """Return what of the options does not go together; None: they do."""
    if options.from_log is None:
        if not options.words:
            return "name the command behind --, as in: gpu-exporter measure -- python3 benchmark.py"
        alone = [f"--{edge}" for edge in ("start", "end") if getattr(options, edge) is not None]
        return f"{alone[0]} goes with --from-log" if alone else None
    if options.words is not None:
        return "--from-log reads a log instead of running a command: give one of both"
    given = {
        "--repeat": options.repeat != 1,
        "--idle-baseline": options.idle_baseline > 0,
        "--tokens-from": options.tokens_from is not None,
        "--provider": options.providers is not None,
        "--simulate": options.simulate is not None,
        "--config.file": options.file is not None,
    }
    wrong = [name for name, is_given in given.items() if is_given]
    return f"{wrong[0]} does not go with --from-log" if wrong else None


def _number_between(low: float, high: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected a number from {low:g} to {high:g}, got {text!r}")
        return value

    return number


def _count_between(low: int, high: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= len(str(high)) and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {high}, got {text!r}")
        return int(text)

    return count


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as e:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {e}") from None
    return text
