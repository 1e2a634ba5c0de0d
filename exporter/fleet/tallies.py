"""What is counted over all cards each time a page is made."""

from collections import Counter
from collections.abc import Iterable, Mapping

from exporter.fleet.card import Card


def left_out(cards: Iterable[Card]) -> Mapping[str, int]:
    """Count the series that the devices have no room for, by family."""
    counts: Counter[str] = Counter()
    for of_card in filter(None, (card.left_out for card in cards)):
        counts.update(of_card)
    return counts


def served_elsewhere(cards: Iterable[Card]) -> Mapping[str, int]:
    """Count the devices of each provider that another one serves: a preferred one, or one that alone tells of them."""
    counts: Counter[str] = Counter()
    for card in cards:
        sights = card.sights
        after = sights.after_lead
        counts.update(
            sight.provider
            for sight in sights
            if sight is not sights.lead and (sight.listed if sight in after else sight.tells_nothing)
        )
    return counts
