"""What is added to the total, from which source, and for which seconds.

While the accumulator is the source, time waits for its next step. When the step does not come (frozen) or cannot be
believed (reset, jump), the integral since the anchor is credited in its place. `credit` says how far the total is ahead
of the accumulator because of that; a later catch-up is paid from it first, so that nothing is counted twice.
"""

import msgspec

from exporter.energy.accumulator import Step, Verdict
from exporter.energy.integral import Segment
from exporter.energy.sums import Sum


class Books(msgspec.Struct, frozen=True):
    hardware: Sum = Sum()
    integrated: Sum = Sum()
    credit: float = 0.0
    booked_at: float = 0.0
    """Every earlier moment is in one of the two columns of seconds, or waits."""
    covered_seconds: Sum = Sum()
    gap_seconds: Sum = Sum()
    waiting_covered_seconds: float = 0.0
    waiting_gap_seconds: float = 0.0


def by_integral(books: Books, segment: Segment | None) -> Books:
    """Book what the power readings say: the accumulator is not the source."""
    joules, covered, gap, booked_at = _part(books, segment)
    return Books(
        books.hardware,
        books.integrated.plus(joules),
        0.0,
        booked_at,
        books.covered_seconds.plus(covered),
        books.gap_seconds.plus(gap),
    )


def by_hardware(books: Books, step: Step, segment: Segment | None, at: float) -> Books:
    """Book what the accumulator says, or the integral where it says nothing that can be believed."""
    if step.verdict is Verdict.ACCEPTED and not (step.frozen and step.joules < books.credit / 2):
        used = min(step.joules, books.credit)
        waited = books.waiting_covered_seconds + books.waiting_gap_seconds
        return Books(
            books.hardware.plus(step.joules - used),
            books.integrated,
            books.credit - used,
            at,
            books.covered_seconds.plus(waited + at - books.booked_at),
            books.gap_seconds,
        )
    _, covered, gap, booked_at = _part(books, segment)
    if step.verdict is Verdict.NONE and not step.frozen:
        return Books(
            books.hardware,
            books.integrated,
            books.credit,
            booked_at,
            books.covered_seconds,
            books.gap_seconds,
            covered,
            gap,
        )
    return Books(
        books.hardware,
        books.integrated.plus(max(0.0, step.integral_joules - books.credit)),
        max(books.credit, step.integral_joules) if step.verdict is Verdict.NONE else 0.0,
        booked_at,
        books.covered_seconds.plus(covered),
        books.gap_seconds.plus(gap),
    )


def _part(books: Books, segment: Segment | None) -> tuple[float, float, float, float]:
    """Return joules of the segment and, with what waits, its covered and gap seconds, and how far it reaches."""
    covered, gap = books.waiting_covered_seconds, books.waiting_gap_seconds
    part = segment and segment.after(books.booked_at)
    if part is None:
        return 0.0, covered, gap, books.booked_at
    if part.joules is None:
        return 0.0, covered, gap + part.end - part.start, part.end
    return part.joules, covered + part.end - part.start, gap, part.end
