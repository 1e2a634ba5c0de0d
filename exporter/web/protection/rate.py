"""How often requests may come: a bucket of tokens, one more each interval, one taken by each request."""

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_MAX_SECONDS = 86400.0


def seconds(text: str) -> float:
    """Read a duration as Go writes it, such as 1s, 250ms or 1m30s. Raises ValueError with what is wrong."""
    if text == "0":
        return 0.0
    if len(text) > 50 or not re.fullmatch(f"(?:{_PART.pattern})+", text, re.ASCII):  # noqa: PLR2004 - longer than any
        raise ValueError("expected a duration such as 1s, 250ms or 1m30s")
    total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if total > _MAX_SECONDS:
        raise ValueError("expected a duration of at most a day")
    return total


class Bucket:
    """`interval`: seconds to the next token, above 0; `burst`: how many there are at most, and at the start."""

    def __init__(self, interval: float, burst: int) -> None:
        self.interval = interval
        self.burst = burst
        self._tokens = float(burst)
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Take a token; False: there is none. `now` is CLOCK_MONOTONIC seconds."""
        if self._at is not None and now > self._at:
            self._tokens = min(float(self.burst), self._tokens + (now - self._at) / self.interval)
        self._at = now if self._at is None else max(now, self._at)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
