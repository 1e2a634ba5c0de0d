"""Writes down what a vendor's library and the kernel answer while a provider reads.

`Recorder.wrap` is for OpenContext: what it returns is used in place of the vendor's module. Of a call that is given
a struct to fill it is written down what was filled in. What cannot be written down passes through, and is named in
`left_out`.
"""

import base64
import enum
import functools
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import yaml

from exporter.captures import answers
from exporter.captures.answers import ERROR, FIELD_VALUES, FILLS, RAISES, UNDECODABLE
from exporter.captures.copy import CopiedFiles, Copier
from exporter.captures.files import Entry, written
from exporter.captures.format import SYSTEM, Capture, Library, Moment, Wall
from exporter.captures.plain import address_of, in_call, plain, struct_of
from exporter.captures.redact import Redactor

_RECORDED = re.compile(r"(?:nvml|amdsmi_)\w+")
_CONSTANTS = re.compile(r"(?:AMDSMI_)?VRAM_TYPE_\w+")
"""Names of amdsmi_wrapper that say what a number in an answer means."""
_PASSED = re.compile(
    r"nvmlEventSet\w*|nvmlDevice(?:RegisterEvents|GetSupportedEventTypes)|nvmlGpm\w+|nvmlDevice(?:Set|Reset|Clear)\w+"
    r"|amdsmi_(?:get_gpu_cper_entries|get_afids_from_cper|set_\w+|reset_\w+)"
)
"""What is not written down: events and samples that only the moment had, and records of errors with serial numbers."""
_VARYING = frozenset({"nvmlDeviceGetProcessUtilization", "nvmlDeviceGetSamples"})
"""Their argument is a time, which is another one in each call."""
_KINDS = (("MigDevice", "mig"), ("EventSet", "events"), ("Sample", "sample"))
_FIELD_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_MOST_CALLS = 20_000


class Recorder:
    """Takes down the calls of one library, and copies what is read of the files below `root`.

    `redactor` decides what may be told.
    """

    def __init__(self, redactor: Redactor | None = None, root: Path = Path("/")) -> None:
        self._redactor = redactor or Redactor()
        self._lock = threading.Lock()
        self._handles: dict[int, str] = {}
        self._calls: dict[str, dict[str, Any]] = {}
        self._moments: list[Moment] = []
        self._package = ""
        self._constants: dict[str, int] = {}
        self._root = root
        self.copier = Copier(root)
        """Of this moment."""
        self.left_out: set[str] = set()
        """Functions of which calls could not be written down."""

    def wrap(self, module: Any) -> Any:
        """Return what stands for a vendor's module, or for the files of the DRM provider: the same, written down."""
        if hasattr(module, "read_whole"):
            return CopiedFiles(lambda: self.copier, module)
        self._package = str(getattr(module, "__name__", "")).partition(".")[0]
        wrapper = vars(getattr(module, "amdsmi_wrapper", None) or object)
        self._constants = {
            name: value for name, value in wrapper.items() if _CONSTANTS.fullmatch(name) and isinstance(value, int)
        }
        return _Recorded(self, module)

    def moment(self, at: float) -> None:
        """End a moment: what was answered since the one before was so at `at`, in seconds."""
        before = Capture(model="", source="", seen="hardware", moments=(*self._moments, Moment(at=at)))
        known = before.calls_at(len(self._moments))
        different = {
            subject: {text: answer for text, answer in calls.items() if known.get(subject, {}).get(text, ...) != answer}
            for subject, calls in self._calls.items()
        }
        self._moments.append(
            Moment(
                at=at,
                calls={subject: calls for subject, calls in different.items() if calls},
                files=self._changed(before.files_at(len(self._moments))),
            )
        )
        self._calls, self.copier = {}, Copier(self._root)

    def capture(self, *, model: str, source: str, version: str, wall: Wall | None = None) -> Capture:
        """Return what was recorded at the moments that were ended. `version`: of the library, as the provider says."""
        known = self._package in ("pynvml", "amdsmi")
        tree = {"package": self._package, "version": version, "constants": self._constants}
        library = msgspec.convert(tree, Library) if known else None
        return Capture(
            model=model,
            source=source,
            seen="hardware",
            wall=wall or Wall(),
            library=library,
            moments=tuple(self._moments),
        )

    def _changed(self, known: Mapping[str, Entry]) -> dict[str, Any]:
        redacted = {path: self._redacted(path, entry) for path, entry in self.copier.files.items()}
        # A file that was read is one that there is; of those not read this time nothing is known.
        return {path: written(entry) for path, entry in redacted.items() if known.get(path, ...) != entry}

    def _redacted(self, path: str, entry: Entry) -> Entry:
        return self._redactor.file(path, entry) if isinstance(entry, bytes) else entry

    def called(self, function: str, bound: Callable[..., Any], arguments: tuple[Any, ...], named: Any) -> Any:
        """Make a call, write it down, and give what it gave."""
        try:
            answer = bound(*arguments, **named)
        except Exception as error:
            refusal = _refusal(error)
            self._note(function, (*arguments, *named.values()), lambda: refusal)
            raise
        given = (*arguments, *named.values())
        self._note(function, given, lambda: self._written(function, given, answer))
        return answer

    def _note(self, function: str, arguments: tuple[Any, ...], write: Callable[[], Any]) -> None:
        with self._lock:  # some providers have a thread of their own
            try:
                self._note_alone(function, arguments, write)
            except Exception:  # noqa: BLE001 -- whatever a vendor's objects do, the call itself has been answered
                self.left_out.add(function)

    def _note_alone(self, function: str, arguments: tuple[Any, ...], write: Callable[[], Any]) -> None:
        subject, rest = SYSTEM, arguments
        if arguments and (address := address_of(arguments[0])) is not None:
            subject, rest = self._name(address, function), arguments[1:]
        if function == FIELD_VALUES:
            self._note_fields(self._calls.setdefault(subject, {}), write())
            return
        answer = self._redactor.answer(function, write())
        if sum(map(len, self._calls.values())) >= _MOST_CALLS:
            self.left_out.add(function)
            return
        ways = [(answers.ANY,)] if function in _VARYING else product(*map(self._argument, rest))
        for spelled in map(", ".join, ways):
            self._calls.setdefault(subject, {})[f"{function}({spelled})" if spelled else function] = answer

    def _note_fields(self, calls: dict[str, Any], table: dict[str, Any]) -> None:
        """Add to the table of a handle; a call that was refused as a whole says nothing where others were answered."""
        before = calls.get(FIELD_VALUES, {ERROR: 0})
        if ERROR in before:
            calls[FIELD_VALUES] = table
        elif ERROR not in table:
            calls[FIELD_VALUES] = {**before, **table}

    def _argument(self, argument: Any) -> Sequence[str]:
        """Return how an argument is spelled; a member of an enumeration in several ways, if it has several names."""
        address = address_of(argument)
        if address is not None:
            return [self._name(address, "")]
        if isinstance(argument, enum.Enum):
            return [name for name, member in type(argument).__members__.items() if member is argument]
        return [self._redactor.text(in_call(argument))]

    def _name(self, address: int, function: str) -> str:
        name = self._handles.get(address)
        if name is None:
            kind = next((kind for word, kind in _KINDS if word in function), "gpu")
            number = sum(other.rstrip("0123456789") == kind for other in self._handles.values())
            name = self._handles[address] = f"{kind}{number}"
        return name

    def _written(self, function: str, arguments: tuple[Any, ...], answer: Any) -> Any:
        def name(address: int) -> str:
            return self._name(address, function)

        if function == FIELD_VALUES:
            return {_field_name(value): _field_value(value) for value in answer}
        struct = next(filter(None, map(struct_of, arguments)), None)
        return plain(answer, name) if struct is None else {FILLS: plain(struct, name)}


class _Recorded:
    """The vendor's module, of which every call is written down."""

    def __init__(self, recorder: Recorder, module: Any) -> None:
        self._recorder = recorder
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if not _RECORDED.fullmatch(name) or not callable(value) or isinstance(value, type) or _PASSED.fullmatch(name):
            return value
        recorder = self._recorder

        @functools.wraps(value)
        def call(*arguments: Any, **named: Any) -> Any:
            return recorder.called(name, value, arguments, named)

        return call


def dump(capture: Capture) -> str:
    """Return a capture as the text of its file."""
    tree = msgspec.to_builtins(capture)
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)


class _Dumper(yaml.SafeDumper):
    """Quotes whatever the strict reading would take for something else than text."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 -- PyYAML's signature
        return True


_PLAIN = re.compile(
    r"(?!(?:null|true|false)\Z)[A-Za-z_$][\w ./$-]*[\w)*]|[A-Za-z_]\w*\([\w ., /*:+-]*\)", re.ASCII | re.IGNORECASE
)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) and ": " not in text and " #" not in text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _text)


def _field_name(value: Any) -> str:
    return f"{value.fieldId}/{value.scopeId}" if value.scopeId else str(value.fieldId)


def _field_value(value: Any) -> Any:
    if value.nvmlReturn:
        return {ERROR: value.nvmlReturn}
    kind = value.valueType
    return getattr(value.value, _FIELD_MEMBERS[kind]) if 0 <= kind < len(_FIELD_MEMBERS) else {ERROR: 3}


def _refusal(error: Exception) -> Any:
    for name in ("value", "err_code"):
        code = getattr(error, name, None)
        if isinstance(code, int) and not isinstance(code, bool):
            return {ERROR: code & 0xFFFFFFFF}
    if isinstance(error, UnicodeDecodeError):
        return {UNDECODABLE: base64.b64encode(error.object).decode("ascii")}
    return {RAISES: answers.exception_name(error)}
