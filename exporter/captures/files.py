"""How files of /sys and /proc are written in a capture.

A folder is a mapping by name, which may hold slashes; one without anything in it is there as well. A text is a file of
that text and a line feed, a number one of its digits. `$text` is a file of that text and nothing more, `$base64` one of
those bytes, `$link` a symbolic link, `$unreadable` a file that cannot be read, with the name of the error; nothing
(null) takes a file away that the moment before had.
"""

import base64
import errno
import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from exporter.captures.answers import bytes_of
from exporter.validation import join, shown

TEXT, BASE64, LINK, UNREADABLE = "$text", "$base64", "$link", "$unreadable"
_TOPS = ("sys", "proc")
_MOST_PARTS = 24
_LONGEST = 700
_LONGEST_PART = 255  # bytes: what file systems take


class Folder(NamedTuple):
    """With nothing in it that was looked at."""


class Link(NamedTuple):
    target: str


class Unreadable(NamedTuple):
    error: str
    """Such as EPERM."""


Entry = bytes | Folder | Link | Unreadable | None
"""None: it is gone."""


def entries(tree: Mapping[str, Any], folder: str = "") -> Iterator[tuple[str, Entry]]:
    """Yield path and content of what is written as `tree`, which has no complaints."""
    for name, value in tree.items():
        path = posixpath.join(folder, name.rstrip("/"))
        if _is_folder(value):
            yield from entries(value, path)
        else:
            yield path, _entry(value)


def _is_folder(value: Any) -> bool:
    """Tell whether it is a folder with something in it."""
    return isinstance(value, dict) and bool(value) and not any(key.startswith("$") for key in value)


def complaints(tree: Mapping[str, Any], path: str, before: set[str]) -> Iterator[str]:
    """Yield what is wrong with written files, with key paths. Adds their paths to those of the moments before."""
    seen: dict[str, str] = {}
    hollow: dict[str, str] = {}
    for where, place, value in _leaves(tree, "", path):
        if complaint := _place_complaint(place) or _value_complaint(value, place):
            yield f"{where}: {complaint}"
        elif place in seen or place in hollow:
            yield f"{where}: given twice, as {seen.get(place) or hollow[place]} too"
        else:
            (hollow if value == {} else seen)[place] = where
    # Of a folder that becomes a file, too: what is written through a link could end up outside.
    folders = {above for place in before for above in _above(place)} | hollow.keys()
    before.update(seen, (f"{place}/" for place in hollow))
    for place, where in (seen | hollow).items():
        own = [place] if place in hollow else []
        if found := next((above for above in (*own, *_above(place)) if above in before), None):
            yield f"{where}: it is below {shown(found)}, which is no folder"
        elif place in folders and place in seen:
            yield f"{where}: it is a folder in a moment before"


def _above(place: str) -> Iterator[str]:
    while place := posixpath.dirname(place):
        yield place


def error_number(name: str) -> int:
    """Return the number of an error by its name; 0: there is none."""
    return getattr(errno, name, 0) if name.isupper() and name.isalnum() else 0


def error_name(error: OSError) -> str:
    """Return the name under which an error of a file is kept."""
    return errno.errorcode.get(error.errno or 0, "EIO")


def written(entry: Entry) -> Any:
    """Return how one file is written."""
    match entry:
        case Link(target):
            made: Any = {LINK: target}
        case Unreadable(error):
            made = {UNREADABLE: error}
        case Folder():
            made = {}
        case None:
            made = None
        case _:
            made = _bytes(entry)
    return made


def _bytes(data: bytes) -> Any:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return {BASE64: _base64(data)}
    if not all(character.isprintable() or character in "\n\t" for character in text):
        return {BASE64: _base64(data)}
    return text[:-1] if text.endswith("\n") and not text.endswith("\n\n") else {TEXT: text}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _entry(value: Any) -> Entry:
    if value is None or isinstance(value, dict):
        return _marked(value) if value else Folder() if value is not None else None
    text = value if isinstance(value, str) else f"{value}"
    return text.encode() if text.endswith("\n") else f"{text}\n".encode()


def _marked(value: Mapping[str, str]) -> Entry:
    ((kind, content),) = value.items()
    if kind == LINK:
        return Link(content)
    if kind == UNREADABLE:
        return Unreadable(content)
    return content.encode() if kind == TEXT else bytes_of(content)


def _leaves(tree: Mapping[str, Any], folder: str, path: str) -> Iterator[tuple[str, str, Any]]:
    for name, value in tree.items():
        where, place = join(path, name), posixpath.join(folder, name.rstrip("/"))
        if _is_folder(value):
            yield from _leaves(value, place, where)
        else:
            yield where, place, value


def _place_complaint(place: str) -> str | None:
    parts = place.split("/")
    if parts[0] not in _TOPS or len(parts) < 2:  # noqa: PLR2004 -- a file in one of them
        return f"expected a path that begins with {' or '.join(f'{top}/' for top in _TOPS)}"
    if len(parts) > _MOST_PARTS or len(place) > _LONGEST or not all(_is_part(part) for part in parts):
        return "it is no path of a file"
    return None


def _is_part(part: str) -> bool:
    return part not in ("", ".", "..") and part.isprintable() and len(part.encode()) <= _LONGEST_PART


def _value_complaint(value: Any, place: str) -> str | None:
    if isinstance(value, str):
        return _text_complaint(value)
    if value is None or value == {} or (isinstance(value, int) and not isinstance(value, bool)):
        return None
    if not isinstance(value, dict) or len(value) != 1:
        return f"expected text, a whole number or one of {', '.join(_KINDS)}"
    ((kind, content),) = value.items()
    if kind not in _KINDS or not isinstance(content, str):
        return f"expected text for one of {', '.join(_KINDS)}"
    return _KINDS[kind](content, place)


def _base64_complaint(content: str, _: str = "") -> str | None:
    return None if bytes_of(content) is not None else "expected base64"


def _error_complaint(content: str, _: str = "") -> str | None:
    return None if error_number(content) else "expected the name of an error, such as EPERM"


def _link_complaint(content: str, place: str) -> str | None:
    return None if _stays_inside(content, place) else "expected a relative path that stays below the root"


def _stays_inside(target: str, place: str) -> bool:
    parts = target.split("/")
    ups = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    # Behind a name, which may be a link, another way up could lead anywhere.
    return (
        len(target) <= _LONGEST
        and ups < len(parts)
        and ups <= place.count("/")
        and all(_is_part(part) for part in parts[ups:])
    )


def _text_complaint(text: str, _: str = "") -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return "it is not text that can be written as UTF-8"
    return None


_KINDS: Mapping[str, Callable[[str, str], str | None]] = {
    TEXT: _text_complaint,
    BASE64: _base64_complaint,
    LINK: _link_complaint,
    UNREADABLE: _error_complaint,
}
"""What is wrong with the content of each, or nothing."""
