"""How millions of small terms are added without drift."""

import msgspec


class Sum(msgspec.Struct, frozen=True, gc=False):
    """A running sum with the part that its rounded value does not hold.

    Each term is rounded once, against a carry that is smaller than half a unit in the last place of `value`: for terms
    of one sign the relative error stays below 2^-52 however many there are. `value` never falls while terms are not
    negative, since every operation on the way to it rounds monotonically.
    """

    value: float = 0.0
    carry: float = 0.0

    def plus(self, term: float) -> "Sum":
        """Return the sum with one more term."""
        if not term:
            return self
        addend = self.carry + term
        value = self.value + addend
        taken = value - self.value
        return Sum(value, (self.value - (value - taken)) + (addend - taken))
