"""One read of one card: what each answer of the kernel means, and where each reading came from.

Driver and device tell by the error of a read what they mean: no such reading, asleep, gone, or broken.
"""

import errno
from collections.abc import Callable, Mapping
from typing import Any

from exporter.providers.drm.cards import Card
from exporter.providers.drm.files import Files
from exporter.providers.fdinfo import DeviceUse
from exporter.providers.sanitise import RATIO, Range, Readings, text

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.EINVAL, errno.ENODATA})
_SUSPENDED = frozenset({"suspended", "suspending"})
_OFF_THE_BUS = b"\xff" * 4


class Reading:
    """Paths are relative to the card's folder, or absolute. `pause` is called before each question to the driver."""

    def __init__(self, card: Card, files: Files, pause: Callable[[], None]) -> None:
        self.card = card
        self.files = files
        self.readings = Readings()
        self.memo: dict[str, Any] = {}
        """What one group read and the next may use again."""
        self.use: DeviceUse | None = None
        """What DRM's clients were last found to have of the card; None: that is not known, or not of all of them."""
        self.sources: dict[str, str] = {}
        """Of metrics.READING_SOURCES, by field of Sample."""
        self._pause = pause
        self._answered = False
        self._denied: set[str] = set()
        self._without_device = False

    @property
    def hindered(self) -> bool:
        """Whether something was not told because the card sleeps, is gone or is broken."""
        return bool(self._denied or self._without_device or self.readings.failed)

    def number(
        self,
        name: str,
        path: str,
        bounds: Range,
        scale: float = 1.0,
        *,
        per: float = 1.0,
        source: str = "sysfs",
        live: bool = True,
    ) -> float | None:
        """Return the number in a file, x `scale` / `per`, within `bounds`; None as of `Readings.number`, given `name`.

        `live`: the driver asks the device for it, and so it answers only while the device is awake.
        """
        raw = self.raw(name, path, live=live)
        if raw is None:
            return None
        said = raw.decode("ascii", "replace").strip()
        try:
            value: object = int(said)
        except ValueError:
            value = said
        # Thousandths and millionths: only all 64 bits are a sentinel, 65535 is 65.5 degrees.
        return self.note(name, self.readings.number(name, value, bounds, scale, per=per, bits=64), source)

    def reject(self, name: str) -> None:
        """Note that what was said for a reading cannot be true."""
        self.readings.number(name, -1, RATIO)

    def note(self, name: str, value: float | None, source: str) -> float | None:
        """Return `value`, and remember where it came from."""
        if value is not None:
            self.sources.setdefault(name, source)
        return value

    def raw(self, name: str, path: str, *, whole: bool = False, live: bool = True) -> bytes | None:
        """Return what a file says; None where it has nothing to say, or broke: then that is noted as reading `name`."""
        self._pause()
        try:
            read = self.files.read_whole if whole else self.files.read
            said = read(path if path.startswith("/") else f"{self.card.folder}/{path}")
        except OSError as error:
            if error.errno == errno.EPERM:  # from Linux 6.15: sooner than wake it
                self._denied.add(name)
            elif error.errno == errno.ENODEV:
                self._without_device = True
            elif error.errno not in _ABSENT:
                self.readings.fail(name)
            return None
        self._answered = self._answered or live
        return said

    def text(self, path: str) -> str | None:
        """Return what a file says that a card may as well go without; it is of no reading, and asks no device."""
        try:
            return text(self.files.read(f"{self.card.folder}/{path}"))
        except OSError:
            return None

    def hexadecimal(self, path: str) -> int | None:
        """Return a number such as 0x1002, of identity as of `text`."""
        try:
            return int(self.text(path) or "", 16)
        except ValueError:
            return None

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; empty where there is none."""
        try:
            return self.files.names(f"{self.card.folder}/{path}")
        except OSError:
            return []

    def suspended(self) -> bool:
        """Tell whether the card sleeps: to ask its driver for more would wake it, before Linux 6.15."""
        return self.text("power/runtime_status") in _SUSPENDED

    def fell_asleep(self) -> bool:
        """Tell, after the read, whether the driver refused because the card sleeps."""
        if self._denied and self._answered and not self.suspended():
            # What refuses one reading and gives others is awake: that one is not ours to read.
            for name in self._denied:
                self.readings.fail(name)
            return False
        return bool(self._denied)

    def lost(self) -> bool:
        """Tell, after the read, whether the card is gone. A driver says "no such device" for a sensor, too."""
        if self._without_device and not self._answered:
            return True
        if self._answered and not self.readings.failed:
            return False
        try:
            self.files.names(self.card.folder)
        except OSError:
            return True
        if not self.hindered:  # it has nothing to tell
            return False
        try:
            return self.files.read(f"{self.card.folder}/config")[:4] == _OFF_THE_BUS
        except OSError:
            return False


def known(values: Mapping[str, float | None]) -> dict[str, float]:
    """Leave out what has no value."""
    return {name: value for name, value in values.items() if value is not None}
