"""Which device is to blame when a read never returns or crashes, and when it is tried again. Pure."""

import enum
from collections.abc import Iterable
from random import Random

from exporter.supervision.backoff import Backoff

FORGIVE_SECONDS = 60.0
SOON_SECONDS = 60.0
_STRUCK_DEVICES = 3
_PROBE_FIRST_SECONDS = 5.0
_PROBE_LONGEST_SECONDS = 60.0


class Verdict(enum.Enum):
    STRIKE = enum.auto()
    QUARANTINE = enum.auto()
    OUTAGE = enum.auto()
    """It is not this device: the provider as a whole does not answer."""

    def told(self, reason: str) -> str:
        """Return it in words; `reason`: what the device did."""
        if self is Verdict.OUTAGE:
            return "one device after the other does not answer"
        if self is Verdict.STRIKE:
            return reason
        return f"{reason} for the second time: the others go on without it, and it is tried again now and then"


class _Strikes:
    def __init__(self) -> None:
        self.count = 0
        self.last = 0.0


class _Held:
    def __init__(self, since: float, backoff: Backoff) -> None:
        self.since = since
        self.backoff = backoff
        self.try_at = since + backoff.next()


class Quarantine:
    """Strikes by device and the devices that are not read by the worker any more."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._strikes: dict[str, _Strikes] = {}
        self._held: dict[str, _Held] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._outage = False
        self._suspects: dict[str, float] = {}
        """When those missed last that were let off in an outage, and have not answered since."""

    @property
    def held(self) -> frozenset[str]:
        return frozenset(self._held)

    @property
    def struck(self) -> tuple[str, ...]:
        """Return the devices that missed and are not forgiven yet, held ones too, in the order of their last miss."""
        times = self._suspects | {key: strikes.last for key, strikes in self._strikes.items()}
        return tuple(sorted(times, key=times.__getitem__))

    def missed(self, key: str, devices: Iterable[str], now: float, answered: Iterable[str] = ()) -> Verdict:
        """Judge a read of `key` that did not return, in time or at all, where the provider serves `devices`.

        `answered`: devices that the same worker has read before. When they are all that are above suspicion, it is this
        device that does not work, and not the provider.
        """
        others = frozenset(devices) - {key}
        innocent = others.difference(self.struck)
        works = bool(innocent) and innocent.issubset(answered)
        strikes = self._strikes.setdefault(key, _Strikes())
        strikes.count += 2 if works and key in self._suspects else 1
        strikes.last = now
        self._suspects.pop(key, None)
        if works:
            return self._judged(key, strikes, now)
        spread = any(now - held.since < SOON_SECONDS for held in self._held.values())
        if self._outage or spread or len(self._strikes) >= _STRUCK_DEVICES or (others and others <= self.held):
            self._lift()
            self._outage = True
            return Verdict.OUTAGE
        return self._judged(key, strikes, now)

    def _judged(self, key: str, strikes: _Strikes, now: float) -> Verdict:
        if strikes.count < 2:  # noqa: PLR2004 -- the second miss is proof
            return Verdict.STRIKE
        backoff = self._backoffs.setdefault(key, Backoff(_PROBE_FIRST_SECONDS, _PROBE_LONGEST_SECONDS, self._random))
        self._held[key] = _Held(now, backoff)
        return Verdict.QUARANTINE

    def answered(self, key: str, now: float) -> None:
        """Note a read by the worker that returned: after a minute the device is forgiven."""
        self._suspects.pop(key, None)
        strikes = self._strikes.get(key)
        if strikes is not None and key not in self._held and now - strikes.last >= FORGIVE_SECONDS:
            del self._strikes[key]
            self._backoffs.pop(key, None)

    def recovered(self) -> None:
        """Note that the provider has been well for a minute: single devices can be blamed again."""
        self._outage = False

    def enumerated(self, keys: Iterable[str]) -> None:
        """Forget the devices that are not there any more."""
        present = frozenset(keys)
        for kept in (self._strikes, self._held, self._backoffs, self._suspects):
            for key in [key for key in kept if key not in present]:
                del kept[key]

    def due(self, now: float) -> str | None:
        """Return the device that has waited longest for its next try, or None."""
        waiting = [(held.try_at, key) for key, held in self._held.items() if held.try_at <= now]
        return min(waiting)[1] if waiting else None

    def taken_up(self, now: float) -> None:
        """Try all that are held as soon as can be: they may have been reset while they were released."""
        for held in self._held.values():
            held.try_at = now
            held.backoff.reset()

    def tried(self, key: str, now: float, *, answered: bool) -> None:
        """Note the end of a probe. A device that answered is taken back, on probation: one miss holds it again."""
        held = self._held.get(key)
        if held is None:
            return
        if answered:
            del self._held[key]
            self._strikes[key].count = 1
            self._strikes[key].last = now
        else:
            held.try_at = now + held.backoff.next()

    def _lift(self) -> None:
        self._suspects |= {key: strikes.last for key, strikes in self._strikes.items()}
        self._strikes.clear()
        self._held.clear()
        self._backoffs.clear()
