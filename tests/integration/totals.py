"""The totals of energy on two pages: is the second the first one, grown?"""

from tests.integration.daemon import Samples


def joules(page: str) -> dict[str, float]:
    return {labels["uuid"]: value for labels, value in Samples(page).all("gpu_energy_joules_total")}


def starts(page: str) -> dict[str, float]:
    return {labels["uuid"]: value for labels, value in Samples(page).all("gpu_energy_start_timestamp_seconds")}


def goes_on(before: str, after: str) -> bool:
    """Whether totals of the second page are those of the first one, grown."""
    then, now = joules(before), joules(after)
    return bool(then) and starts(before) == starts(after) and all(now[uuid] >= then[uuid] for uuid in then)
