"""Which devices are put in question when a worker hangs or crashes, and whether the next one may start soon. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from exporter.supervision.child import Child
from exporter.supervision.quarantine import Quarantine, Verdict
from exporter.supervision.standing import Standing


class Judgement(NamedTuple):
    reason: str
    soon: bool
    """Whether the next worker need not wait for the back-off: it goes on without the device, or reads it last."""


class Blame:
    def __init__(self, quarantine: Quarantine, standing: Standing, deadline: float) -> None:
        """`deadline`: seconds that a read may take."""
        self._quarantine = quarantine
        self._standing = standing
        self._deadline = deadline

    def hung(self, worker: Child, devices: Sequence[str], now: float, *, is_stopped: bool) -> Judgement:
        """Judge a worker that is late, `stuck_on` a device or not. `is_stopped`: a signal or a debugger holds it."""
        key = worker.stuck_on
        if key is not None:
            verdict = self._quarantine.missed(key, devices, now, worker.answered)
            reason = verdict.told(f"device {key} did not answer within {self._deadline:g} s")
            self._suspect((key,) if verdict is not Verdict.OUTAGE else (*devices, key), reason)
            return Judgement(reason, verdict is not Verdict.OUTAGE)
        if is_stopped:
            return Judgement("the worker is stopped by a signal or a debugger", False)
        reason = f"the worker hangs while {worker.activity.value}"
        self._suspect(devices, reason)
        return Judgement(reason, False)

    def crashed(self, worker: Child, devices: Sequence[str], now: float) -> bool:
        """Judge a worker that ended in the midst of a read; tell whether the next one may start soon.

        One crash puts no device in question: the next worker is there before readings are missed.
        """
        key = worker.crashed_in
        if key is None:
            return False
        verdict = self._quarantine.missed(key, devices, now, worker.answered)
        if verdict is Verdict.QUARANTINE:
            self._suspect((key,), verdict.told(f"device {key} ended the worker that read it"))
        elif verdict is Verdict.OUTAGE:
            self.absolve()
        return verdict is not Verdict.OUTAGE

    def absolve(self) -> None:
        """Take the devices out of question that no read has proved to be: the library as a whole is of no use."""
        self._standing.absolve(self._quarantine.held)

    def _suspect(self, keys: Sequence[str], reason: str) -> None:
        for key in keys:
            self._standing.suspect(key, reason)
