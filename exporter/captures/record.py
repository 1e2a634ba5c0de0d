"""Writes down what a vendor's library and the kernel answer while a provider reads.

`Recorder.wrap` is for OpenContext: what it returns is used in place of the vendor's module. Only plain arguments can be
written down; a call that is given a struct to fill passes through and is named in `left_out`.
"""

import base64
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import yaml

from exporter.captures import answers
from exporter.captures.answers import ERROR, FIELD_VALUES, RAISES, UNDECODABLE
from exporter.captures.files import Entry, written
from exporter.captures.format import SYSTEM, Capture, Library, Moment, Wall
from exporter.captures.plain import address_of, plain
from exporter.captures.redact import Redactor
from exporter.captures.replay import in_call

_RECORDED = re.compile(r"(?:nvml|amdsmi_)\w+")
_CONSTANTS = re.compile(r"(?:AMDSMI_)?VRAM_TYPE_\w+")
"""Names of amdsmi_wrapper that say what a number in an answer means."""
_VARYING = frozenset({"nvmlDeviceGetProcessUtilization", "nvmlDeviceGetSamples"})
"""Their argument is a time, which is another one in each call."""
_KINDS = (("MigDevice", "mig"), ("EventSet", "events"), ("Sample", "sample"))
_FIELD_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_MOST_CALLS = 20_000


class Recorder:
    """Takes down the calls of one library. `redactor` decides what may be told."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        self._redactor = redactor or Redactor()
        self._handles: dict[int, str] = {}
        self._calls: dict[str, dict[str, Any]] = {}
        self._moments: list[tuple[float, dict[str, dict[str, Any]]]] = []
        self._package = ""
        self._constants: dict[str, int] = {}
        self.left_out: set[str] = set()
        """Functions of which calls could not be written down."""

    def wrap(self, module: Any) -> "_Recorded":
        """Return what stands for `module`: it does the same, and is written down."""
        self._package = str(getattr(module, "__name__", "")).partition(".")[0]
        wrapper = vars(getattr(module, "amdsmi_wrapper", None) or object)
        self._constants = {
            name: value for name, value in wrapper.items() if _CONSTANTS.fullmatch(name) and isinstance(value, int)
        }
        return _Recorded(self, module)

    def moment(self, at: float) -> None:
        """End a moment: what was answered since the one before was so at `at`, in seconds."""
        known: dict[str, dict[str, Any]] = {}
        for _, calls in self._moments:
            for subject, mine in calls.items():
                known.setdefault(subject, {}).update(mine)
        different = {
            subject: {text: answer for text, answer in calls.items() if known.get(subject, {}).get(text, ...) != answer}
            for subject, calls in self._calls.items()
        }
        self._moments.append((at, {subject: calls for subject, calls in different.items() if calls}))
        self._calls = {}

    def capture(
        self,
        *,
        model: str,
        source: str,
        version: str,
        files: Mapping[float, Mapping[str, Entry]] | None = None,
        wall: Wall | None = None,
    ) -> Capture:
        """Return what was recorded at the moments that were ended. `files`: by moment, as the copier gives them."""
        copied = dict(files or {})
        times = sorted({at for at, _ in self._moments} | copied.keys())
        by_time = dict(self._moments)
        moments = tuple(
            Moment(
                at=at,
                calls=by_time.get(at, {}),
                files={path: written(self._redacted(path, entry)) for path, entry in copied.get(at, {}).items()},
            )
            for at in times
        )
        library = Library(package=self._package, version=version, constants=self._constants)  # type: ignore[arg-type] # one of two
        known = library if self._package in ("pynvml", "amdsmi") else None
        return Capture(model=model, source=source, seen="hardware", wall=wall or Wall(), library=known, moments=moments)

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
        self._note(function, (*arguments, *named.values()), lambda: self._written(function, answer))
        return answer

    def _note(self, function: str, arguments: tuple[Any, ...], write: Callable[[], Any]) -> None:
        subject, rest = SYSTEM, arguments
        if arguments and (address := address_of(arguments[0])) is not None:
            subject, rest = self._name(address, function), arguments[1:]
        try:
            if function == FIELD_VALUES:
                self._note_fields(self._calls.setdefault(subject, {}), write())
                return
            spelled = answers.ANY if function in _VARYING else ", ".join(self._argument(each) for each in rest)
            answer = write()
        except (TypeError, AttributeError, ValueError):
            self.left_out.add(function)
            return
        if sum(map(len, self._calls.values())) >= _MOST_CALLS:
            self.left_out.add(function)
            return
        text = f"{function}({spelled})" if spelled else function
        self._calls.setdefault(subject, {})[text] = self._redactor.answer(function, answer)

    def _note_fields(self, calls: dict[str, Any], table: dict[str, Any]) -> None:
        """Add to the table of a handle; a call that was refused as a whole says nothing where others were answered."""
        before = calls.get(FIELD_VALUES, {ERROR: 0})
        if ERROR in before:
            calls[FIELD_VALUES] = table
        elif ERROR not in table:
            calls[FIELD_VALUES] = {**before, **table}

    def _argument(self, argument: Any) -> str:
        address = address_of(argument)
        if address is not None:
            return self._name(address, "")
        return self._redactor.text(in_call(argument))

    def _name(self, address: int, function: str) -> str:
        name = self._handles.get(address)
        if name is None:
            kind = next((kind for word, kind in _KINDS if word in function), "gpu")
            number = sum(other.rstrip("0123456789") == kind for other in self._handles.values())
            name = self._handles[address] = f"{kind}{number}"
        return name

    def _written(self, function: str, answer: Any) -> Any:
        if function == FIELD_VALUES:
            return {_field_name(value): _field_value(value) for value in answer}
        return plain(answer, lambda address: self._name(address, function))


class _Recorded:
    """The vendor's module, of which every call is written down."""

    def __init__(self, recorder: Recorder, module: Any) -> None:
        self._recorder = recorder
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if not _RECORDED.fullmatch(name) or not callable(value) or isinstance(value, type):
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
