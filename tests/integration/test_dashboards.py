"""Every query of every panel is asked of a real Prometheus, and what it answers is compared with what is true."""

import statistics
import time
from collections.abc import Iterator

import pytest

from tests.grafana.answers import Series, Window, ask, choices
from tests.grafana.empty import EMPTY, excused
from tests.grafana.queries import DIRECTORY, FILES, Target, defaults, every_target, load, variables
from tests.grafana.rows import ROWS
from tests.grafana.site import INTERVAL_SECONDS, MIXED, SERVING, Site, site

WINDOW_SECONDS = 15.0
MOMENTS = 5
"""Windows that end a scrape interval apart; the median counts, as one late scrape of a busy machine moves an edge."""
TRUE = 0.01
"""By how much an answer may be off."""

FLEET, INFERENCE = (load(DIRECTORY / f"gpu-exporter-{name}.json") for name in ("fleet", "inference"))
BY_NAME = {path.stem: load(path) for path in FILES}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Window]]:
    """Yield the site and the last window of those that the tests ask for."""
    with site(tmp_path_factory.mktemp("site")) as running:
        # What the lost GPU drew before it was lost must not be in a window.
        lost = 'gpu_state{state="lost"} == 1'
        running.daemons[MIXED].until(lambda: running.server.query(lost), seconds=60)
        time.sleep(WINDOW_SECONDS + (MOMENTS + 1) * INTERVAL_SECONDS)
        # What is scraped at the end has to be stored before it is asked for.
        end = time.time() - INTERVAL_SECONDS
        yield running, Window(end - WINDOW_SECONDS, end, step=2.0, interval=5.0)


def windows(last: Window) -> list[Window]:
    return [last._replace(start=last.start - n, end=last.end - n) for n in range(MOMENTS)]


def asked(board: str, panel: str, ref: str = "A") -> Target:
    (found,) = [t for t in every_target() if (t.board, t.panel, t.ref) == (f"gpu-exporter-{board}", panel, ref)]
    return found


def test_every_variable_has_choices(run: tuple[Site, Window]) -> None:
    site, window = run
    for name, board in BY_NAME.items():
        for variable, values in choices(site.server, board, window).items():
            assert values, f"{name}: {variable}"
    devices = sum(len(machine.devices) for machine in site.machines.values())
    assert len(choices(site.server, BY_NAME["gpu-exporter-gpu"], window)["uuid"]) == devices


def test_every_query_of_every_panel_finds_something(run: tuple[Site, Window]) -> None:
    """The board of one GPU has panels for what only some models tell: a query has to find something for one of them."""
    site, window = run
    uuids = choices(site.server, BY_NAME["gpu-exporter-gpu"], window)["uuid"]
    empty = []
    for target in every_target():
        first = defaults(BY_NAME[target.board])
        one_gpu = "uuid" in variables(BY_NAME[target.board])
        tries = [{**first, "uuid": uuid} for uuid in uuids] if one_gpu else [first]
        if not any(ask(site.server, target.expr, window, values, instant=target.instant) for values in tries):
            empty.append(target)
    assert [str(target) for target in empty if not excused(target)] == []


def test_what_is_excused_is_there() -> None:
    known = {name for t in every_target() for name in (str(t), f"{t.board}: {t.panel}")}
    assert known >= EMPTY.keys()


@pytest.mark.parametrize("server", [option["text"] for option in variables(INFERENCE)["tokens"]["options"]])
def test_each_inference_server_can_be_chosen(run: tuple[Site, Window], server: str) -> None:
    site, window = run
    values = defaults(INFERENCE)
    for name in ("tokens", "prompts", "queries"):
        options = {o["text"]: o["value"] for o in variables(INFERENCE)[name]["options"]}
        values[name] = options.get(server, values[name])
    target = asked("inference", "Joules per output token")
    (found,) = ask(site.server, target.expr, window, values | {"instance": SERVING}, instant=True)
    watts = sum(row.watts_per_gpu * row.gpus for row in ROWS)
    assert found.last == pytest.approx(watts / sum(row.tokens_per_second for row in ROWS), rel=TRUE)


def median(site: Site, window: Window, target: Target, values: dict[str, str]) -> dict[str, float]:
    """Return the median over the windows of what a query answers, by the pod of a series, or the empty text."""
    found: dict[str, list[float]] = {}
    for moment in windows(window):
        series: list[Series] = ask(site.server, target.expr, moment, values, instant=True)
        for one in series:
            found.setdefault(one.labels.get("k8s_pod", ""), []).append(one.last)
    return {name: statistics.median(numbers) for name, numbers in found.items()}


@pytest.mark.parametrize("instances", [(SERVING, MIXED), (SERVING,), (MIXED,)], ids=["fleet", "serving", "mixed"])
def test_joules_of_the_fleet_are_the_true_ones(run: tuple[Site, Window], instances: tuple[str, ...]) -> None:
    site, window = run
    values = defaults(FLEET) | {"instance": "|".join(instances)}
    answered = median(site, window, asked("fleet", "Energy"), values)[""]
    true = statistics.median(sum(site.truth(i, w.start, w.end) for i in instances) for w in windows(window))
    assert answered == pytest.approx(true, rel=TRUE)
    kilowatt_hours = median(site, window, asked("fleet", "Energy in kWh"), values)[""]
    assert kilowatt_hours == pytest.approx(true / 3.6e6, rel=TRUE)
    cost = median(site, window, asked("fleet", "Cost"), values | {"price": "0.25", "pue": "1.3"})[""]
    assert cost == pytest.approx(kilowatt_hours * 0.25 * 1.3, rel=1e-9)


def test_joules_per_token_and_query_by_pod_are_those_of_the_runs(run: tuple[Site, Window]) -> None:
    site, window = run
    values = defaults(INFERENCE)
    per_token = median(site, window, asked("inference", "Pods that serve", "A"), values)
    per_query = median(site, window, asked("inference", "Pods that serve", "B"), values)
    assert per_token == {row.pod: pytest.approx(row.joules_per_token, rel=TRUE) for row in ROWS}
    assert per_query == {row.pod: pytest.approx(row.joules_per_query, rel=TRUE) for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.pod)
def test_joules_per_token_and_query_of_chosen_gpus_are_those_of_the_run(row: object, run: tuple[Site, Window]) -> None:
    site, window = run
    number = ROWS.index(row)
    held = site.server.query(f'gpu_workload_info{{k8s_pod="{ROWS[number].pod}"}}')
    assert len(held) == ROWS[number].gpus
    values = defaults(INFERENCE) | {
        "instance": SERVING,
        "gpu": "|".join(labels["gpu"] for labels, _ in held),
        "server": f"node-a:{8000 + number}",
    }

    def answer(panel: str) -> float:
        return median(site, window, asked("inference", panel), values)[""]

    assert answer("Joules per output token") == pytest.approx(ROWS[number].joules_per_token, rel=TRUE)
    assert answer("Joules per query") == pytest.approx(ROWS[number].joules_per_query, rel=TRUE)
    assert answer("Power of a GPU") == pytest.approx(ROWS[number].watts_per_gpu, rel=TRUE)
    assert answer("Output tokens of a GPU") == pytest.approx(ROWS[number].tokens_per_second_per_gpu, rel=TRUE)


def test_joules_per_token_by_host_are_those_of_all_its_runs(run: tuple[Site, Window]) -> None:
    site, window = run
    answered = median(site, window, asked("inference", "Hosts that serve", "A"), defaults(INFERENCE))[""]
    watts = sum(row.watts_per_gpu * row.gpus for row in ROWS)
    assert answered == pytest.approx(watts / sum(row.tokens_per_second for row in ROWS), rel=TRUE)


def test_what_is_held_and_idle_and_what_is_lost_is_told(run: tuple[Site, Window]) -> None:
    site, window = run
    values = defaults(FLEET) | {"instance": MIXED}

    def answer(panel: str) -> float:
        return median(site, window, asked("fleet", panel), values)[""]

    assert answer("GPUs held and idle") == 1
    assert answer("GPUs lost, hung or stale") == 1
    assert answer("GPUs up") == len(site.machines[MIXED].devices) - 1
    (lost,) = ask(site.server, asked("fleet", "Silent GPUs").expr, window, values, instant=True)
    assert lost.labels["gpu"] == "sim5"
    assert lost.labels["state"] == "lost"


def test_exporters_are_told_from_other_targets(run: tuple[Site, Window]) -> None:
    site, window = run
    board = defaults(BY_NAME["gpu-exporter-exporter"])
    assert median(site, window, asked("exporter", "Exporters up"), board) == {"": 2}
    assert median(site, window, asked("exporter", "Exporters down"), board) == {"": 1}
    for panel in ("Time of a scrape", "Samples of a scrape"):
        target = asked("exporter", panel)
        scraped = ask(site.server, target.expr, window, board, instant=True)
        assert {s.labels["instance"] for s in scraped} >= {SERVING, MIXED}
        assert {s.labels["job"] for s in scraped} == {"gpu-exporter"}


def test_users_have_names_and_what_they_use_is_no_more_than_the_total(run: tuple[Site, Window]) -> None:
    site, window = run
    values = defaults(BY_NAME["gpu-exporter-energy"])
    found = {
        panel: {
            s.labels[label]: s.last for s in ask(site.server, asked("energy", panel).expr, window, values, instant=True)
        }
        for panel, label in (("By user", "owner"), ("By Slurm job", "slurm_job"), ("By namespace", "k8s_namespace"))
    }
    assert found["By user"].keys() == {"ada", "bob"}
    assert found["By Slurm job"].keys() == {"4711", "4712", "4713"}
    assert found["By namespace"].keys() == {"serving"}
    total = median(site, window, asked("energy", "Energy"), values)[""]
    assert sum(sum(joules.values()) for joules in found.values()) < 1.2 * total
    serving = sum(row.watts_per_gpu * row.gpus for row in ROWS) * WINDOW_SECONDS
    assert found["By namespace"]["serving"] == pytest.approx(serving, rel=0.05)  # one window alone


def test_what_is_allocated_and_not_used_is_told(run: tuple[Site, Window]) -> None:
    """Two jobs share a busy GPU and one holds an idle one; workloads without an allocation do not count."""
    site, window = run
    answered = median(site, window, asked("fleet", "Allocated and idle"), defaults(FLEET))[""]
    assert 1.0 <= answered < 1.6


def test_no_rule_fails(run: tuple[Site, Window]) -> None:
    rules = [rule for group in run[0].server.api("rules")["groups"] for rule in group["rules"]]
    assert rules
    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []
