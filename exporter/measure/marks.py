"""What a command says about itself while it runs: windows, tokens and queries, a line each in a file it is told of.

`start NAME` and `end NAME` make a window; `tokens N` and `queries N` say how many more there were, and count for the
whole command, and for the windows that are open, else for the one that ended last. A line counts when it is ended.
"""

import codecs
import contextlib
import math
import re
from collections.abc import Mapping

from exporter.measure.records import Mark, Window

VARIABLE = "GPU_EXPORTER_MARKS"
COMMAND = "command"
"""The window of the whole command."""
MOST_WINDOWS = 1000
MOST_NOTES = 20
LONGEST_OUTPUT_LINE = 16_384
"""Characters of the output that a pattern is held against at once."""
_LONGEST_LINE = 1000
_SHOWN = 60
_NUMBER = re.compile(r"[+]?\d[\d,_']*(?:\.\d+)?(?:[eE][+-]?\d+)?")


class _Open:
    def __init__(self, name: str, start: float) -> None:
        self.name = name
        self.start = start
        self.end: float | None = None
        self.counts: dict[str, float] = {}


class Marks:
    """Lines come in, windows come out. Pure: the moment at which a piece was read is an argument."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        """What could not be understood, a sentence each."""
        self._half = b""
        self._windows: list[_Open] = []
        self._counts: dict[str, float] = {}

    def feed(self, data: bytes, now: float) -> None:
        """Take what was appended to the file, cut anywhere, read at `now` in CLOCK_MONOTONIC seconds."""
        *lines, half = (self._half + data).split(b"\n")
        for line in lines:
            self._line(line[: _LONGEST_LINE + 1].decode("utf-8", "replace").strip(), now)
        # What is too long to be understood need not be kept whole.
        self._half = half[: _LONGEST_LINE + 1]

    def finish(self) -> None:
        """Say what the end of the command leaves open."""
        if self._half.strip():
            self._note(
                f"The last mark has no end of line and does not count: {_shown(self._half.decode('utf-8', 'replace'))}."
            )
            self._half = b""

    def take(self, mark: Mark) -> None:
        """Take a mark, whichever way it came."""
        match mark.kind:
            case "start":
                self._start(mark.name or "", mark.monotonic)
            case "end":
                self._end(mark.name or "", mark.monotonic)
            case kind:
                self._count(kind, mark.count or 0.0)

    def windows(self, start: float, end: float, given: Mapping[str, float] | None = None) -> tuple[Window, ...]:
        """Return the window of the command, which ran from `start` to `end`, and those within it.

        `given`: tokens and queries that are known from elsewhere. They belong to the window that the command marked as
        well, if there is exactly one.
        """
        given = given or {}
        one = len(self._windows) == 1
        found = [_window(COMMAND, start, end, _added(self._counts, given))]
        names = {COMMAND}
        for window in self._windows:
            name, again = window.name, 1
            while name in names:
                again += 1
                name = f"{window.name} ({again})"
            names.add(name)
            found.append(_window(name, window.start, window.end, _added(window.counts, given if one else {})))
        return tuple(found)

    def _line(self, line: str, now: float) -> None:
        if not line:
            return
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word in ("start", "end") and rest and rest.isprintable() and len(line) <= _LONGEST_LINE:
            self.take(Mark(monotonic=now, kind=word, name=rest))  # type: ignore[arg-type]  # one of the two
        elif word in ("tokens", "queries") and (count := number(rest)) is not None:
            self.take(Mark(monotonic=now, kind=word, count=count))  # type: ignore[arg-type]  # as above
        else:
            self._note(f"A mark is none of start NAME, end NAME, tokens N, queries N: {_shown(line)}.")

    def _start(self, name: str, now: float) -> None:
        if self._find(name) is not None:
            self._note(f"The window {_shown(name)} was begun again before it was ended; the first beginning counts.")
        elif len(self._windows) >= MOST_WINDOWS:
            self._note(f"There are more than {MOST_WINDOWS} windows; the others do not count.")
        else:
            self._windows.append(_Open(name, now))

    def _end(self, name: str, now: float) -> None:
        window = self._find(name)
        if window is None:
            self._note(f"The window {_shown(name)} was ended and not begun.")
        else:
            window.end = now

    def _find(self, name: str) -> _Open | None:
        return next((window for window in self._windows if window.name == name and window.end is None), None)

    def _count(self, kind: str, count: float) -> None:
        of = [window for window in self._windows if window.end is None]
        if not of and self._windows:
            of = [max(self._windows, key=lambda window: window.end or 0.0)]
        for counts in (self._counts, *(window.counts for window in of)):
            counts[kind] = counts.get(kind, 0.0) + count

    def _note(self, text: str) -> None:
        if len(self.notes) < MOST_NOTES and text not in self.notes:
            self.notes.append(text)


class Counts:
    """Adds up the numbers that a pattern finds in output, line by line, holding one line at most."""

    def __init__(self, pattern: re.Pattern[str], kind: str = "tokens") -> None:
        """`pattern`: its group `kind`, else its first one, else all of it, is the number of each match."""
        self.matches = 0
        self.is_too_slow = False
        """Whether looking was given up, so that nothing is known of the tokens."""
        self._pattern = pattern
        self._group: str | int = kind if kind in pattern.groupindex else min(1, pattern.groups)
        self._half = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes, *, end: bool = False) -> float:
        """Return how many more the lines are worth that `data` completes; with `end` also the last, unfinished one."""
        # A progress bar ends its lines with a carriage return.
        *lines, half = re.split(r"[\r\n]", self._half + self._decoder.decode(data, end))
        if end or len(half) > LONGEST_OUTPUT_LINE:
            lines.append(half)
            half = ""
        self._half = half
        return math.fsum(self._of(line) for line in lines)

    def _of(self, line: str) -> float:
        total = 0.0
        for match in self._pattern.finditer(line):
            count = number(match[self._group] or "")
            if count is not None:
                self.matches += 1
                total += count
        return total


def number(text: str) -> float | None:
    """Return a count that people or programs wrote: 12345, 12,345, 1.2e4; None: it is none."""
    if _NUMBER.fullmatch(text.strip()) is None:
        return None
    value = math.nan
    with contextlib.suppress(ValueError):
        value = float(re.sub(r"[,_']", "", text))
    return value if math.isfinite(value) else None


def _window(name: str, start: float, end: float | None, counts: dict[str, float]) -> Window:
    return Window(name=name, start=start, end=end, output_tokens=counts.get("tokens"), queries=counts.get("queries"))


def _added(one: dict[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {kind: one.get(kind, 0.0) + other.get(kind, 0.0) for kind in one.keys() | other.keys()}


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
