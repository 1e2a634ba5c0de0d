"""What must not leave the host with a capture: whose hardware it is, and who works there.

Serial numbers and UUIDs are replaced, the same by the same within one capture, so that what belongs together still
does. The replacements are made with a key that is drawn anew and never kept.
"""

import base64
import hashlib
import os
import re
import secrets
import socket
from collections.abc import Mapping
from typing import Any

from exporter.captures.answers import BYTES, ERROR, HANDLE, MEMBER, RAISES, UNDECODABLE, bytes_of

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX = re.compile(r"(?P<before>0x)?(?P<digits>[0-9a-f]{16})", re.IGNORECASE)
_SECRET = re.compile(r"serial|unique_?id|hive_?id|fru_?id|uuid|cuid|pdi|guid", re.IGNORECASE)
"""In the name of a function, key or file: what stands there identifies the hardware."""
_KEPT = frozenset({HANDLE, ERROR, MEMBER, RAISES})
_NAMED = frozenset({"name", "container_name", "process_name"})
"""Of a process, where a call is about processes."""
_NO_SECRETS = frozenset({"", "root", "localhost"})
_LINE = re.compile(r"(?m)^(?P<name>\w+)(?P<gap>[ :\t]+)(?P<value>\S+)$")
_STATUS_BITS = 16
"""A number of fewer is a version, a status or a count."""
_NO_NUMBERS = frozenset({0, 2**32 - 1, 2**64 - 1})
_SHORTEST = 4
"""Of a secret that is looked for everywhere: what is shorter is found by chance."""


def names_of_this_host() -> dict[str, str]:
    """Return what this host and its user are called, with what stands for them."""
    found = {os.environ.get(variable, ""): "user" for variable in ("USER", "LOGNAME", "SUDO_USER")}
    for name in (socket.gethostname(), os.uname().nodename):
        found |= {name: "host", name.partition(".")[0]: "host"}
    return {name: other for name, other in found.items() if name not in _NO_SECRETS}


class Redactor:
    """Replaces what identifies hardware, host and users.

    `words`: names that are never to be seen, with substitutes; None: those of this host.
    """

    def __init__(self, words: Mapping[str, str] | None = None, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(32) if key is None else key
        words = names_of_this_host() if words is None else words
        self._words = {word: other for word, other in words.items() if len(word) >= _SHORTEST}
        self._texts: dict[str, str] = {}

    def answer(self, function: str, value: Any) -> Any:
        """Return an answer, plain values only, with its secrets replaced."""
        processes = "process" in function.lower()
        return self._inside(value, secret=_SECRET.search(function) is not None, processes=processes)

    def file(self, path: str, data: bytes) -> bytes:
        """Return the content of a file with its secrets replaced."""
        if _SECRET.search(path.rpartition("/")[2]):
            return self._secret(data.decode("latin-1")).encode("latin-1")  # a character for each byte, whatever it is
        try:
            text = data.decode("ascii")
        except UnicodeDecodeError:
            return data
        return self.text(_LINE.sub(self._line, text)).encode()

    def text(self, text: str) -> str:
        """Return a text without UUIDs, known secrets and words."""
        text = _UUID.sub(lambda match: self._other(match.group()), text)
        for known, other in sorted(self._texts.items(), key=lambda item: -len(item[0])):
            if len(known) >= _SHORTEST:
                text = text.replace(known, other)
        for word, other in self._words.items():
            text = re.sub(rf"(?<![\w]){re.escape(word)}(?![\w])", other, text)
        return text

    def _line(self, match: re.Match[str]) -> str:
        if not _SECRET.search(match["name"]):
            return match.group()
        value = match["value"]
        new = str(self._number(int(value))) if value.isdecimal() else self._secret(value)
        return f"{match['name']}{match['gap']}{new}"

    def _inside(self, value: Any, *, secret: bool, processes: bool) -> Any:
        if isinstance(value, dict):
            return self._mapping(value, secret=secret, processes=processes)
        if isinstance(value, list):
            return [self._inside(item, secret=secret, processes=processes) for item in value]
        if isinstance(value, str):
            return self._secret(value) if secret else self.text(value)
        if secret and isinstance(value, int) and value.bit_length() > _STATUS_BITS:
            return self._number(value)
        return value

    def _mapping(self, value: dict[str, Any], *, secret: bool, processes: bool) -> dict[str, Any]:
        if value.keys() & _KEPT:
            return value
        if secret and value.keys() & {BYTES, UNDECODABLE}:
            return {key: self._bytes(text) for key, text in value.items()}
        return {
            key: "process"
            if processes and key in _NAMED
            else self._inside(item, secret=secret or _SECRET.search(key) is not None, processes=processes)
            for key, item in value.items()
        }

    def _secret(self, text: str) -> str:
        """Return other digits in place of a secret's; words such as N/A, zeros and ones stay: they mean none."""
        if _UUID.search(text):
            return _UUID.sub(lambda match: self._other(match.group()), text)
        bare = text.strip()
        return text.replace(bare, self._other(bare)) if bare else text

    def _other(self, bare: str) -> str:
        match = _HEX.fullmatch(bare)
        if match is None and not any(character.isdigit() for character in bare):
            return bare
        if set(bare.lower().removeprefix("0x")) - {"-"} in ({"0"}, {"f"}):
            return bare
        new = self._texts.get(bare)
        if new is None:
            if match is None:
                new = self._shaped(bare)
            else:
                # Written with other prefixes and cases, or as a number, elsewhere.
                digits = f"{self._number(int(match['digits'], 16)):016x}"
                digits = digits.upper() if match["digits"].isupper() else digits
                new = f"{match['before'] or ''}{digits}"
            self._texts[bare] = new
        return new

    def _shaped(self, text: str) -> str:
        """Return a text of the same shape: digits for digits, and letters of hexadecimal for such letters."""
        hexadecimal = _UUID.search(text) is not None
        source = iter(self._digest(text.lower()) * (len(text) // 32 + 1))
        made = []
        for character in text:
            if hexadecimal and character.lower() in "0123456789abcdef":
                digit = f"{next(source) % 16:x}"
                made.append(digit.upper() if character.isupper() else digit)
            elif character.isdigit():
                made.append(str(next(source) % 10))
            else:
                made.append(character)
        return "".join(made)

    def _number(self, number: int) -> int:
        if number in _NO_NUMBERS:
            return number
        width = max(1, (number.bit_length() + 7) // 8)
        digest = int.from_bytes(self._digest(str(number))[:width], "big")
        # Of the same length, so that it has the shape of the number.
        return digest | 1 << number.bit_length() - 1 if number.bit_length() < 64 else digest & (1 << 64) - 1 | 1 << 63  # noqa: PLR2004 -- bits

    def _bytes(self, text: Any) -> str:
        data = bytes_of(text) or b""
        other = (self._digest(data.hex()) * (len(data) // 32 + 1))[: len(data)]
        return base64.b64encode(other if any(data) else data).decode("ascii")

    def _digest(self, text: str) -> bytes:
        return hashlib.blake2b(text.encode("utf-8", "replace"), key=self._key, digest_size=32).digest()
