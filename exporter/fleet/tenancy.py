"""What each workload has used of one device, and what nobody is charged for: parts that add up to the device's total.

Every joule of the device's total is divided at once, by the shares that hold at that moment; new shares count from the
step after they are known. Counters begin at 0 when a workload is first seen on the device, and stay for a time after it
is gone. A forgotten one takes its joules along: what is left on the page still grows by as much as the total does.
"""

import math
from collections.abc import Iterable, Mapping

from exporter.energy.idle import IdlePower, follow, idle_part
from exporter.energy.shares import Shares, active_shares, allocation_ratios, idle_shares
from exporter.energy.sums import Sum
from exporter.fleet.record import MOST_WORKLOADS, MOST_WORKLOADS_IN_ALL, TenancyRecord, WorkloadRecord
from exporter.fleet.tenants import Tenants
from exporter.model import Workload, WorkloadSnapshot
from exporter.text import LONGEST

REFRESH_SECONDS = 1.0
"""How often allocations are counted while nothing else happens."""
EVICT_SECONDS = 60.0
"""A workload that is gone makes room no sooner: what it used last is to be on a page of each scraper before."""
RESTART_SECONDS = 60.0
"""Accounts stay at least so long after a restart: drivers take their time until it is known who is there."""
MOST_CHARACTERS = LONGEST
"""Of a key: as much of it as the page shows."""


class Room:
    """How many more workloads there is room for on all devices together.

    Whoever finds no room is charged nothing; on its device, one that has been gone for a while makes room for it.
    """

    def __init__(self, most: int = MOST_WORKLOADS_IN_ALL) -> None:
        self.left = most


class _Account:
    def __init__(self, kept: WorkloadRecord) -> None:
        self.workload = kept.workload
        self.start_timestamp = kept.start_timestamp
        self.active = Sum(kept.active_joules)
        self.idle = Sum(kept.idle_joules)
        self.busy = Sum(kept.busy_seconds)
        self.allocated = Sum(kept.allocated_seconds)
        self.ratio: float | None = None
        self.active_share = 0.0
        self.idle_share = 0.0
        self.gone_at: float | None = None


class Tenancy:
    """The accounts of one device. Times are monotonic seconds."""

    def __init__(self, linger: float, room: Room) -> None:
        """`linger`: for how many seconds an account is kept after its workload is gone."""
        self._linger = linger
        self._room = room
        self._accounts: dict[str, _Account] = {}
        self._first_gone = math.inf
        """Since when the one is gone that is to be forgotten first."""
        self._idle_power = IdlePower()
        self._divided: float | None = None
        """How much of the total has been divided, with what was there before that began; None: it has not."""
        self._covered = 0.0
        self._since = self._until = -math.inf
        """When the shares were set, and until when allocations have been counted."""
        self._open = (0.0, 0.0)
        """Joules and seconds of which no load was read yet."""
        self._active = Sum()
        self._idle = Sum()
        self._busy = Sum()
        """What came in since the shares were set: it is charged at the latest when they change."""
        self._busy_total: float | None = None
        self._rest = Sum()
        self._rest_shares = (1.0, 1.0)
        """Of the active and the idle part."""
        self._has_joules = False
        self.refused = 0
        """Workloads without an account, because there are too many."""

    @property
    def begun(self) -> bool:
        return self._divided is not None

    def begin(self, total: float, covered: float, busy: float | None, now: float) -> None:
        """Divide from here on; what was used before is nobody's."""
        self._divided, self._covered = total, covered
        self._busy_total = busy
        self._since = self._until = now

    def energy(self, total: float, covered: float) -> None:
        """Take the device's total and the seconds that it covers."""
        if self._divided is None:
            return
        self._has_joules = True
        joules, seconds = self._open
        self._open = joules + max(0.0, total - self._divided), seconds + max(0.0, covered - self._covered)
        self._divided, self._covered = total, covered

    def load(self, ratio: float | None, busy: float | None) -> None:
        """Take the newest load and the device's busy seconds: it is the load of what was used since the one before."""
        if self._divided is None:
            return
        joules, seconds = self._open
        if joules or seconds:
            idle = idle_part(self._idle_power, joules, seconds, ratio)
            self._idle = self._idle.plus(idle)
            self._active = self._active.plus(joules - idle)
            self._idle_power = follow(self._idle_power, joules, seconds, ratio)
            self._open = (0.0, 0.0)
        if busy is not None:
            if self._busy_total is not None and busy > self._busy_total:
                self._busy = self._busy.plus(busy - self._busy_total)
            self._busy_total = busy

    def forget_idle_power(self) -> None:
        """Another sensor tells the power from here on."""
        self._idle_power = IdlePower()

    def divide(self, tenants: Tenants, now: float, wall: float | None) -> None:
        """Charge what came in by the shares until now, and from here on by those of `tenants`. `wall`: Unix time."""
        if self._divided is None:
            return
        self._settle(now)
        ratios = allocation_ratios(tenants.holds)
        present = {key: workload for key, workload in tenants.workloads.items() if len(key) <= MOST_CHARACTERS}
        self._admit(present, now, wall)
        active = active_shares(tenants.uses, tenants.holds, tenants.loads)
        self._share(active, idle_shares(ratios), ratios)
        self.refused = sum(key not in self._accounts for key in tenants.workloads)

    def expire(self, now: float) -> bool:
        """Forget whoever has been gone for long enough; tells whether anybody was."""
        if not self._expires(now):
            return False
        over = [
            key
            for key, account in self._accounts.items()
            if account.gone_at is not None and now - account.gone_at >= self._linger
        ]
        for key in over:
            self._drop(key)
        self._find_first_gone()
        return True

    def awaits(self, now: float) -> bool:
        """Tell whether somebody is to be forgotten, or allocations are to be counted."""
        return self._expires(now) or self.due(now)

    def advance(self, now: float) -> None:
        """Count allocations until now."""
        self._until = max(self._until, now)

    def due(self, now: float) -> bool:
        """Tell whether there is an allocation that has not been counted for a while."""
        return now - self._until >= REFRESH_SECONDS and any(one.ratio for one in self._accounts.values())

    def snapshots(self) -> tuple[WorkloadSnapshot, ...]:
        """Return what is published of each workload, in the order of their keys."""
        if not self._accounts:
            return ()
        elapsed = self._until - self._since
        active, idle, busy = self._active.value, self._idle.value, self._busy.value
        has_busy = self._busy_total is not None
        return tuple(
            WorkloadSnapshot(
                workload=account.workload,
                allocation_ratio=account.ratio,
                active_joules=_grown(account.active, account.active_share * active) if self._has_joules else None,
                idle_joules=_grown(account.idle, account.idle_share * idle) if self._has_joules else None,
                busy_seconds=_grown(account.busy, account.active_share * busy) if has_busy else None,
                allocated_seconds=_grown(account.allocated, (account.ratio or 0.0) * elapsed),
                start_timestamp=account.start_timestamp,
            )
            for account in self._accounts.values()
        )

    @property
    def unattributed_joules(self) -> float | None:
        """What no workload was charged; None: there is nothing to divide."""
        return _grown(self._rest, self._of_nobody) if self._has_joules else None

    def record(self) -> TenancyRecord | None:
        """Return what is kept over a restart; None: nothing is divided."""
        if self._divided is None:
            return None
        return TenancyRecord(
            divided_joules=self._divided if self._has_joules else None,
            covered_seconds=self._covered,
            unattributed_joules=self.unattributed_joules or 0.0,
            idle_watts=self._idle_power.watts,
            workloads=tuple(
                WorkloadRecord(
                    workload=shown.workload,
                    active_joules=shown.active_joules or 0.0,
                    idle_joules=shown.idle_joules or 0.0,
                    busy_seconds=account.busy.value if shown.busy_seconds is None else shown.busy_seconds,
                    allocated_seconds=shown.allocated_seconds or 0.0,
                    start_timestamp=shown.start_timestamp,
                )
                for shown, account in zip(self.snapshots(), self._accounts.values(), strict=True)
            ),
        )

    def restore(self, record: TenancyRecord, now: float) -> None:
        """Go on from a record. Who is there is not known yet: until then nobody is charged."""
        self._divided, self._covered = record.divided_joules or 0.0, record.covered_seconds
        self._has_joules = record.divided_joules is not None
        self._rest = Sum(record.unattributed_joules)
        self._idle_power = IdlePower(record.idle_watts)
        self._since = self._until = now
        for kept in record.workloads:
            if self._room.left:
                self._room.left -= 1
                account = self._accounts[kept.workload.key] = _Account(kept)
                account.gone_at = now + max(0.0, RESTART_SECONDS - self._linger)
        self._find_first_gone()

    def close(self) -> None:
        """Give the room back."""
        for key in tuple(self._accounts):
            self._drop(key)

    @property
    def _of_nobody(self) -> float:
        return self._rest_shares[0] * self._active.value + self._rest_shares[1] * self._idle.value

    def _settle(self, now: float) -> None:
        self.advance(now)
        elapsed = self._until - self._since
        active, idle, busy = self._active.value, self._idle.value, self._busy.value
        # The same sums that `snapshots` has shown of them, so that none falls.
        for account in self._accounts.values():
            account.active = account.active.plus(account.active_share * active)
            account.idle = account.idle.plus(account.idle_share * idle)
            account.busy = account.busy.plus(account.active_share * busy)
            account.allocated = account.allocated.plus((account.ratio or 0.0) * elapsed)
        self._rest = self._rest.plus(self._of_nobody)
        self._active = self._idle = self._busy = Sum()
        self._since = self._until

    def _admit(self, present: Mapping[str, Workload], now: float, wall: float | None) -> None:
        for key, account in self._accounts.items():
            if key in present:
                account.gone_at = None
                account.workload = present[key]
            elif account.gone_at is None:
                account.gone_at = now
        for key in sorted(present.keys() - self._accounts.keys()):
            if (len(self._accounts) >= MOST_WORKLOADS or not self._room.left) and not self._evict(now):
                continue
            self._room.left -= 1
            self._accounts[key] = _Account(WorkloadRecord(workload=present[key], start_timestamp=wall))
        self._accounts = dict(sorted(self._accounts.items()))
        self._find_first_gone()

    def _expires(self, now: float) -> bool:
        return now - self._first_gone >= self._linger

    def _find_first_gone(self) -> None:
        self._first_gone = min(
            (one.gone_at for one in self._accounts.values() if one.gone_at is not None), default=math.inf
        )

    def _evict(self, now: float) -> bool:
        gone = [
            (account.gone_at, key)
            for key, account in self._accounts.items()
            if account.gone_at is not None and now - account.gone_at >= EVICT_SECONDS
        ]
        if gone:
            self._drop(min(gone)[1])
        return bool(gone)

    def _drop(self, key: str) -> None:
        """Forget an account, which must have no share."""
        del self._accounts[key]
        self._room.left += 1

    def _share(self, active: Shares, idle: Shares, ratios: Shares) -> None:
        for key, account in self._accounts.items():
            account.ratio = ratios.get(key)
            account.active_share, account.idle_share = active.get(key, 0.0), idle.get(key, 0.0)
        self._rest_shares = (
            _left(account.active_share for account in self._accounts.values()),
            _left(account.idle_share for account in self._accounts.values()),
        )


def _left(shares: Iterable[float]) -> float:
    return max(0.0, 1.0 - math.fsum(shares))


def _grown(total: Sum, term: float) -> float:
    return total.plus(term).value if term else total.value
