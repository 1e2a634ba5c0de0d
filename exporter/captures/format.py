"""Is this text a capture? The strict reading of it: all mistakes at once, each with its key path."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from exporter import strict_yaml
from exporter.captures import answers, files
from exporter.model import Sample
from exporter.validation import ValidationError, convert, join, shown, suggestion

Text = Annotated[str, Meta(extra={"check": lambda text: None if text.strip() else "needed"})]
_Seconds = Annotated[float, Meta(ge=0.0, le=1e9)]
_Figure = Annotated[float, Meta(ge=0.0, le=1e12)]

SYSTEM = "system"
"""Of `Moment.calls`: what is asked of the library and not of a handle."""


class CaptureError(Exception):
    """The capture cannot be used. `messages`: one line for each mistake, with its key path."""

    def __init__(self, messages: tuple[str, ...]) -> None:
        self.messages = messages
        super().__init__("\n".join(messages))


class Wall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the GPUs of the capture draw in all, however many devices and partitions the vendor shows it on."""

    watts: _Figure | None = None
    """At the last moment; None: nothing of it can be read here."""
    joules: _Figure | None = None
    """Between the first moment and the last."""
    module_watts: _Figure | None = None
    """Of the modules that carry the GPUs, at the last moment."""


class Library(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The vendor's library and its Python package."""

    package: Literal["pynvml", "amdsmi"]
    package_version: str = ""
    version: str
    """Of the library, such as 26.0.2."""
    constants: dict[str, int] = {}
    """Of amdsmi_wrapper, where a number stands for something else in each release."""


class Moment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was answered at one moment; each after the first holds what is different from the one before."""

    at: _Seconds
    """Seconds since a moment of its own choosing."""
    calls: dict[str, dict[str, Any]] = {}
    """By what is asked (`system`, or the name of a handle), then by `function(arguments without the handle)`."""
    files: dict[str, Any] = {}


class Capture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    model: Text
    source: Text
    """Where the figures are from."""
    filled_in: str = ""
    """Which of them nobody has seen, and what they were taken from."""
    seen: Literal["hardware", "published", "documented"]
    """What it is made of: a recording of this host, published output, or documentation alone."""
    documented: tuple[str, ...] = ()
    """Readings, by field of Sample, that are here by documentation alone, although others were seen."""
    wall: Wall = Wall()
    library: Library | None = None
    """None: there are files only."""
    moments: Annotated[tuple[Moment, ...], Meta(min_length=1, max_length=100)]

    def calls_at(self, number: int) -> dict[str, dict[str, Any]]:
        """Return every call that has an answer at a moment, by what is asked and by (function, arguments) as text."""
        known: dict[str, dict[str, Any]] = {}
        for moment in self.moments[: number + 1]:
            for subject, calls in moment.calls.items():
                mine = known.setdefault(subject, {})
                for text, answer in calls.items():
                    key = spelled(text)
                    before = mine.get(key)
                    table = key == answers.FIELD_VALUES and isinstance(before, dict) and isinstance(answer, dict)
                    mine[key] = {**before, **answer} if table and before is not None else answer
        return known

    def files_at(self, number: int) -> dict[str, files.Entry]:
        """Return every file that there is at a moment."""
        known: dict[str, files.Entry] = {}
        for moment in self.moments[: number + 1]:
            known |= dict(files.entries(moment.files))
        return {path: entry for path, entry in known.items() if entry is not None}

    def files_changed_at(self, number: int) -> dict[str, files.Entry]:
        """Return what a moment changes in the files of the one before."""
        return dict(files.entries(self.moments[number].files))


def spelled(text: str) -> str:
    """Return a call in the spelling by which it is looked up: `function(a, b)`, without arguments `function`."""
    function, arguments = answers.parse_call(text) or (text, "")
    return f"{function}({arguments})" if arguments else function


def read_capture(path: Path, *, name: str) -> Capture:
    """Read a capture file. Raises OSError, ValueError where no file can have the name, and as `load_capture`."""
    return load_capture(strict_yaml.read(path), name=name)


def load_capture(text: str | bytes, *, name: str = "capture") -> Capture:
    """Read a capture from YAML, of which JSON is a part. Raises CaptureError; its messages start with `name`."""
    try:
        document = strict_yaml.load(
            text if isinstance(text, bytes) else text.encode("utf-8", "replace"), most=strict_yaml.MANY_VALUES
        )
        capture = convert(document.value, Capture, document.problems)
        problems = ValidationError(_problems(capture)).messages
    except strict_yaml.YamlError as e:
        raise CaptureError((f"{name}: {e}",)) from None
    except ValidationError as e:
        raise CaptureError(tuple(f"{name}: {message}" for message in e.messages)) from None
    if problems:
        raise CaptureError(tuple(f"{name}: {message}" for message in problems))
    return capture


def _problems(capture: Capture) -> Iterator[str]:
    """Yield what types and bounds cannot say, with key paths."""
    for index, name in enumerate(capture.documented):
        if name not in Sample.__struct_fields__:
            yield f"documented[{index}]: no reading is called {shown(name)}{suggestion(name, Sample.__struct_fields__)}"
    before, paths = -1.0, set[str]()
    for number, moment in enumerate(capture.moments):
        path = f"moments[{number}]"
        if moment.at <= before:
            yield f"{path}.at: it is not after the moment before"
        before = moment.at
        if moment.calls and capture.library is None:
            yield f"{path}.calls: there is no library to call"
        for subject, calls in moment.calls.items():
            yield from _calls(calls, subject, join(f"{path}.calls", subject))
        yield from files.complaints(moment.files, f"{path}.files", paths)
    if capture.library is not None and SYSTEM not in capture.moments[0].calls:
        yield "moments[0].calls.system: needed"


def _calls(calls: Mapping[str, Any], subject: str, path: str) -> Iterator[str]:
    if not answers.is_name(subject):
        yield f"{path}: it is no name of a handle"
    seen: set[str] = set()
    for text, answer in calls.items():
        where = join(path, text)
        if answers.parse_call(text) is None:
            yield f"{where}: expected a call such as function(argument)"
        elif spelled(text) in seen:
            yield f"{where}: given twice"
        seen.add(spelled(text))
        if text == answers.FIELD_VALUES and isinstance(answer, dict) and answers.ERROR not in answer:
            yield from _fields(answer, where)
        else:
            yield from answers.complaints(answer, where)


def _fields(table: Mapping[str, Any], path: str) -> Iterator[str]:
    for text, value in table.items():
        where = join(path, text)
        if answers.parse_field(text) is None:
            yield f"{where}: expected a field such as 185 or 185/1"
        refused = isinstance(value, dict) and set(value) == {answers.ERROR}
        if not refused and (not isinstance(value, int | float) or isinstance(value, bool)):
            yield f"{where}: expected a number or a refusal, got {shown(value)}"
        yield from answers.complaints(value, where)
