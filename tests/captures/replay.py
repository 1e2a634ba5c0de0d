"""A module that answers as a capture says, in place of the vendor's; and the kernel's files beside it.

What was not recorded is refused in the vendor's own way: "not supported", or "not found" for a look-up. The exceptions
are the vendor's where they are given, else of the same shape. Structs are records of what was recorded of them.
"""

import ctypes
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from exporter.captures import answers, files
from exporter.captures.answers import Filled, Handle, Member, Raised, Refusal
from exporter.captures.format import SYSTEM, Capture, spelled
from exporter.captures.plain import in_call, struct_of

_UNSIGNED, _SIGNED, _DOUBLE = 3, 4, 0
_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class ReplayedError(Exception):
    """A refusal, shaped as those of both vendors. Its text is the status."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = self.err_code = value

    def get_error_code(self) -> int:
        return self.value


class _Conduct(NamedTuple):
    """How the vendor's package behaves where nothing was recorded."""

    prefix: str
    not_supported: int
    dead_handle: int
    others: Mapping[str, Any]
    """By function: what it answers in place of "not supported"."""
    errors: str
    struct: Callable[[dict[str, Any]], Any]


def _record(members: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(**members)


_CONDUCT: Mapping[str, _Conduct] = {
    "pynvml": _Conduct(
        "nvml",
        not_supported=3,
        dead_handle=2,
        others={
            "nvmlInit": None,
            "nvmlInitWithFlags": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetCount": 0,
            "nvmlDeviceGetHandleByIndex": Refusal(2),
            "nvmlDeviceGetHandleByUUID": Refusal(6),
            "nvmlDeviceGetHandleByPciBusId": Refusal(6),
            "nvmlDeviceGetMigDeviceHandleByIndex": Refusal(6),
        },
        errors="NVMLError",
        struct=_record,
    ),
    "amdsmi": _Conduct(
        "amdsmi_",
        not_supported=2,
        dead_handle=31,
        others={"amdsmi_init": None, "amdsmi_shut_down": None, "amdsmi_get_processor_handles": ()},
        errors="AmdSmiLibraryException",
        struct=dict,
    ),
}


class Replay:
    """The stand-in for `pynvml` or `amdsmi` at one moment of a capture; `number` may be set to go to another.

    `errors`: the vendor's class of refusals, made from a status. `rest`: the vendor's module, for what is no function:
    constants, structs; a function that it does not have is missing here as well.
    """

    def __init__(self, capture: Capture, *, errors: type[Exception] = ReplayedError, rest: Any = None) -> None:
        if capture.library is None:
            raise ValueError("the capture is of files only")
        self._capture = capture
        self._conduct = _CONDUCT[capture.library.package]
        self._errors = errors
        self._rest = rest
        self._number = -1
        self._calls: dict[str, dict[str, Any]] = {}
        self.number = 0
        self.asked: set[str] = set()
        """Every call that was made, as a capture spells it, with its subject in front."""
        self.amdsmi_wrapper = SimpleNamespace(**capture.library.constants)

    @property
    def number(self) -> int:
        return self._number

    @number.setter
    def number(self, number: int) -> None:
        self._number, self._calls = number, self._capture.calls_at(number)

    def __getattr__(self, name: str) -> Any:
        conduct = self._conduct
        if name == conduct.errors:
            return self._errors
        if re.fullmatch(rf"{conduct.prefix}\w+", name) and self._is_function(name):
            return lambda *arguments, **named: self._answer(name, (*arguments, *named.values()))
        if self._rest is not None:
            return getattr(self._rest, name)
        if conduct.struct is dict and name.startswith("AmdSmi"):
            return _Members()
        raise AttributeError(name)

    def _is_function(self, name: str) -> bool:
        found = None if self._rest is None else getattr(self._rest, name)
        return self._rest is None or (callable(found) and not isinstance(found, type))

    def _answer(self, function: str, arguments: tuple[Any, ...]) -> Any:
        subject = SYSTEM
        if arguments and isinstance(arguments[0], Handle):
            subject, arguments = arguments[0].name, arguments[1:]
            if subject not in self._calls:
                raise self._errors(self._conduct.dead_handle)
        calls = self._calls.get(subject, {})
        if function == answers.FIELD_VALUES:
            self.asked.add(f"{subject} {function}")
            return self._fields(calls.get(function, {}), arguments[0])
        text = spelled(f"{function}({', '.join(map(in_call, arguments))})")
        self.asked.add(f"{subject} {text}")
        for key in (text, f"{function}({answers.ANY})"):
            if key in calls:
                answer = answers.decode(calls[key], self._conduct.struct)
                return self._filled(answer, arguments) if isinstance(answer, Filled) else self._given(answer)
        other = self._conduct.others.get(function, Refusal(self._conduct.not_supported))
        return list(other) if isinstance(other, tuple) and not isinstance(other, Refusal) else self._given(other)

    @staticmethod
    def _filled(answer: Filled, arguments: tuple[Any, ...]) -> int:
        """Fill the struct among the arguments, as the library does that answers with a status."""
        for struct in filter(None, map(struct_of, arguments)):
            _fill(struct, answer.members)
        return 0

    def _given(self, answer: Any) -> Any:
        if isinstance(answer, Refusal):
            raise self._errors(answer.code)
        if isinstance(answer, Raised):
            raise answer.error
        return answer

    def _fields(self, table: Mapping[str, Any], asked: list[Any]) -> list[Any]:
        self._given(answers.decode(table)) if answers.ERROR in table else None
        known = {answers.parse_field(text): value for text, value in table.items()}
        fields = [field if isinstance(field, tuple) else (int(field), 0) for field in asked]
        missing = {answers.ERROR: self._conduct.not_supported}
        values = [_field(field, known.get(field, missing)) for field in fields]
        if values and all(value.nvmlReturn for value in values):
            raise self._errors(self._conduct.not_supported)
        return values


class _Members:
    """An enumeration of amdsmi: any member, by its name, since a capture names members and not their numbers."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


class ReplayedFiles:
    """Stands for the Files of the DRM provider where a capture was put below `root`: it answers the recorded errors.

    `files`: what reads the rest.
    """

    def __init__(self, capture: Capture, root: Path, files: Any) -> None:
        self._capture = capture
        self._root = os.path.realpath(root)
        self._files = files
        self._refused: dict[str, int] = {}
        self.number = 0

    @property
    def number(self) -> int:
        """Of the moment."""
        return self._number

    @number.setter
    def number(self, number: int) -> None:
        self._number = number
        self._refused = {
            path: files.error_number(entry.error)
            for path, entry in self._capture.files_at(number).items()
            if isinstance(entry, files.Unreadable)
        }

    def read(self, path: str) -> bytes:
        self._refuse(path)
        data: bytes = self._files.read(path)
        return data

    def read_whole(self, path: str) -> bytes:
        self._refuse(path)
        data: bytes = self._files.read_whole(path)
        return data

    def names(self, path: str) -> list[str]:
        names: list[str] = self._files.names(path)
        return names

    def leads_to(self, path: str) -> str:
        name: str = self._files.leads_to(path)
        return name

    def _refuse(self, path: str) -> None:
        folder, name = os.path.split(path)
        number = self._refused.get(os.path.relpath(f"{os.path.realpath(folder)}/{name}", self._root))
        if number is not None:
            raise OSError(number, os.strerror(number), path)


def materialise(capture: Capture, root: Path, number: int = 0) -> None:
    """Write the files of a moment below `root`: of the first all, of a later one what is different. Raises OSError.

    A file that cannot be read is one that leads to itself: to read it is an error, though seldom the one recorded.
    """
    changed = capture.files_at(0) if number == 0 else capture.files_changed_at(number)
    for path, entry in changed.items():
        place = root / path
        if isinstance(entry, files.Folder):
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.unlink(missing_ok=True)
        if entry is None:
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(entry, bytes):
            place.write_bytes(entry)
        else:
            place.symlink_to(entry.target if isinstance(entry, files.Link) else place.name)


def _fill(struct: Any, members: Mapping[str, Any]) -> None:
    """Set members of a struct; those that it does not have are left out, and so are handles.

    Raises TypeError, ValueError for what does not fit.
    """
    known = {field[0] for field in struct._fields_}
    for name, value in members.items():
        if name not in known or isinstance(value, Handle | Member):
            continue
        place = getattr(struct, name)
        if isinstance(value, dict):
            _fill(place, value)
        elif isinstance(place, ctypes.Array):
            for index, item in enumerate(value[: len(place)]):
                place[index] = item
        else:
            setattr(struct, name, value)


def _field(field: answers.Field, value: Any) -> SimpleNamespace:
    """Return what pynvml has for one field; the type of a number follows from its value."""
    refused = isinstance(value, dict)
    number = 0 if refused else value
    kind = _DOUBLE if isinstance(number, float) else _SIGNED if number < 0 else _UNSIGNED
    return SimpleNamespace(
        fieldId=field[0],
        scopeId=field[1],
        timestamp=0,
        latencyUsec=0,
        valueType=kind,
        nvmlReturn=value[answers.ERROR] if refused else 0,
        value=SimpleNamespace(**dict.fromkeys(_VALUE_MEMBERS, number)),
    )
