"""Every query of every panel is asked of a real Prometheus, and what it answers is compared with what is true."""

import time
from collections.abc import Iterator

import pytest

from tests.grafana.answers import Series, Window, ask, choices, stored
from tests.grafana.empty import EMPTY, excused
from tests.grafana.queries import DIRECTORY, FILES, Target, defaults, every_target, load, variables
from tests.grafana.rows import ROWS, Row
from tests.grafana.site import DOWN, INTERVAL_SECONDS, MIXED, SERVING, Site, site

WINDOW_SECONDS = 16.0
PATIENCE_SECONDS = 120.0
"""For a window without a missed scrape; on a busy machine there are not many."""
TRUE = 0.01
"""By how much an answer may be off."""

JOBS = {"4711", "4712", "4713"}
FLEET, INFERENCE = (load(DIRECTORY / f"gpu-exporter-{name}.json") for name in ("fleet", "inference"))
BY_NAME = {path.stem: load(path) for path in FILES}


def is_whole(site: Site, window: Window) -> bool:
    """Tell whether `increase` reaches both edges of the window, which it does up to 1.1 intervals from a sample."""
    counters = f'{{__name__=~"gpu_energy_joules_total|vllm:generation_tokens_total", instance!="{DOWN}"}}'
    found = {labels["instance"]: points for labels, points in stored(site.server, counters, window)}
    return len(found) == 2 + len(ROWS) and all(
        len(points) > 3
        and max(points[0][0] - window.start, window.end - points[-1][0])
        < 1.1 * (points[-1][0] - points[0][0]) / (len(points) - 1)
        for points in found.values()
    )


def all_are_known(site: Site, at: float) -> bool:
    """Tell whether every workload has been seen: it is charged from then on."""
    known = site.server.query("gpu_workload_info", at)
    pods = [labels for labels, _ in known if labels.get("k8s_pod")]
    return len(pods) == sum(row.gpus for row in ROWS) and {labels.get("slurm_job", "") for labels, _ in known} > JOBS


def readings(site: Site, instance: str, window: Window) -> dict[str, tuple[float, float, float]]:
    """Return when each GPU was read first and last in a window, and how far apart these two scrapes were.

    Prometheus stamps a page with the moment when it began to ask for it. On a busy machine the page is made later, or
    has older readings.
    """
    found = stored(site.server, f'gpu_last_sample_timestamp_seconds{{instance="{instance}"}}', window)
    return {labels["uuid"]: (points[0][1], points[-1][1], points[-1][0] - points[0][0]) for labels, points in found}


def true_joules(site: Site, instance: str, window: Window) -> dict[str, float]:
    """Return true joules of each GPU from its first to its last reading, stretched over the window as by `increase`."""
    return {
        uuid: site.truth(instance, uuid, first, last) * window.seconds / seconds
        for uuid, (first, last, seconds) in readings(site, instance, window).items()
    }


def held(site: Site, window: Window, row: Row) -> list[dict[str, str]]:
    """Return the labels of the GPUs that a pod works on."""
    found = site.server.query(f'gpu_workload_info{{k8s_pod="{row.pod}"}}', window.end)
    assert len(found) == row.gpus
    return [labels for labels, _ in found]


def lateness(site: Site, window: Window, *rows: Row) -> float:
    """Return how much energy was read of the GPUs of these runs, by what belongs to the window: 1 without lateness."""
    joules = true_joules(site, SERVING, window)
    read = sum(joules[labels["uuid"]] for row in rows for labels in held(site, window, row))
    return read / (window.seconds * sum(row.watts_per_gpu * row.gpus for row in rows))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Window]]:
    """Yield the site and a window that the tests ask for."""
    with site(tmp_path_factory.mktemp("site")) as running:
        # What the lost GPU drew before it was lost must not be in the window.
        running.daemons[MIXED].until(lambda: running.server.query('gpu_state{state="lost"} == 1'), seconds=60)
        lost = time.time()
        time.sleep(WINDOW_SECONDS)

        def whole() -> Window | None:
            # What is scraped at the end has to be stored before it is asked for.
            end = time.time() - INTERVAL_SECONDS / 2
            window = Window(end - WINDOW_SECONDS, end, step=2.0, interval=4 * INTERVAL_SECONDS)
            usable = window.start > lost and all_are_known(running, window.start) and is_whole(running, window)
            return window if usable else None

        yield running, running.daemons[MIXED].until(whole, seconds=PATIENCE_SECONDS)


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
    late = lateness(site, window, *ROWS)
    assert found.last / late == pytest.approx(watts / sum(row.tokens_per_second for row in ROWS), rel=TRUE)


def answer(site: Site, window: Window, target: Target, values: dict[str, str]) -> dict[str, float]:
    """Return what a query answers, by the pod of a series, or the empty text."""
    series: list[Series] = ask(site.server, target.expr, window, values, instant=True)
    return {one.labels.get("k8s_pod", ""): one.last for one in series}


@pytest.mark.parametrize("instances", [(SERVING, MIXED), (SERVING,), (MIXED,)], ids=["fleet", "serving", "mixed"])
def test_joules_of_the_fleet_are_the_true_ones(run: tuple[Site, Window], instances: tuple[str, ...]) -> None:
    site, window = run
    values = defaults(FLEET) | {"instance": "|".join(instances)}
    answered = answer(site, window, asked("fleet", "Energy"), values)[""]
    true = sum(sum(true_joules(site, instance, window).values()) for instance in instances)
    assert answered == pytest.approx(true, rel=TRUE)
    kilowatt_hours = answer(site, window, asked("fleet", "Energy in kWh"), values)[""]
    assert kilowatt_hours == pytest.approx(true / 3.6e6, rel=TRUE)
    cost = answer(site, window, asked("fleet", "Cost"), values | {"price": "0.25", "pue": "1.3"})[""]
    assert cost == pytest.approx(kilowatt_hours * 0.25 * 1.3, rel=1e-9)


def test_joules_per_token_and_query_by_pod_are_those_of_the_runs(run: tuple[Site, Window]) -> None:
    site, window = run
    values = defaults(INFERENCE)
    per_token = answer(site, window, asked("inference", "Pods that serve", "A"), values)
    per_query = answer(site, window, asked("inference", "Pods that serve", "B"), values)
    late = {row.pod: lateness(site, window, row) for row in ROWS}
    assert per_token == {row.pod: pytest.approx(row.joules_per_token * late[row.pod], rel=TRUE) for row in ROWS}
    assert per_query == {row.pod: pytest.approx(row.joules_per_query * late[row.pod], rel=TRUE) for row in ROWS}


@pytest.mark.parametrize("number", range(len(ROWS)), ids=[row.pod for row in ROWS])
def test_joules_per_token_and_query_of_chosen_gpus_are_those_of_the_run(number: int, run: tuple[Site, Window]) -> None:
    site, window = run
    row = ROWS[number]
    late = lateness(site, window, row)
    values = defaults(INFERENCE) | {
        "instance": SERVING,
        "gpu": "|".join(labels["gpu"] for labels in held(site, window, row)),
        "server": f"node-a:{8000 + number}",
    }

    def shown(panel: str) -> float:
        return answer(site, window, asked("inference", panel), values)[""]

    assert shown("Joules per output token") / late == pytest.approx(row.joules_per_token, rel=TRUE)
    assert shown("Joules per query") / late == pytest.approx(row.joules_per_query, rel=TRUE)
    assert shown("Power of a GPU") / late == pytest.approx(row.watts_per_gpu, rel=TRUE)
    assert shown("Output tokens of a GPU") == pytest.approx(row.tokens_per_second_per_gpu, rel=TRUE)


def test_joules_per_token_by_host_are_those_of_all_its_runs(run: tuple[Site, Window]) -> None:
    site, window = run
    answered = answer(site, window, asked("inference", "Hosts that serve", "A"), defaults(INFERENCE))[""]
    watts = sum(row.watts_per_gpu * row.gpus for row in ROWS)
    tokens = sum(row.tokens_per_second for row in ROWS)
    assert answered / lateness(site, window, *ROWS) == pytest.approx(watts / tokens, rel=TRUE)


def test_what_is_held_and_idle_and_what_is_lost_is_told(run: tuple[Site, Window]) -> None:
    site, window = run
    values = defaults(FLEET) | {"instance": MIXED}

    def shown(panel: str) -> float:
        return answer(site, window, asked("fleet", panel), values)[""]

    assert shown("GPUs held and idle") == 1
    assert shown("GPUs lost, hung or stale") == 1
    assert shown("GPUs up") == len(site.machines[MIXED].devices) - 1
    (lost,) = ask(site.server, asked("fleet", "Silent GPUs").expr, window, values, instant=True)
    assert lost.labels["gpu"] == "sim5"
    assert lost.labels["state"] == "lost"


def test_exporters_are_told_from_other_targets(run: tuple[Site, Window]) -> None:
    site, window = run
    board = defaults(BY_NAME["gpu-exporter-exporter"])
    assert answer(site, window, asked("exporter", "Exporters up"), board) == {"": 2}
    assert answer(site, window, asked("exporter", "Exporters down"), board) == {"": 1}
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
    assert found["By Slurm job"].keys() == JOBS
    assert found["By namespace"].keys() == {"serving"}
    total = answer(site, window, asked("energy", "Energy"), values)[""]
    assert sum(sum(joules.values()) for joules in found.values()) < 1.2 * total
    assert found["By namespace"]["serving"] == pytest.approx(sum(true_joules(site, SERVING, window).values()), rel=TRUE)


def test_what_is_allocated_and_not_used_is_told(run: tuple[Site, Window]) -> None:
    """Two jobs share a busy GPU and one holds an idle one; workloads without an allocation do not count."""
    site, window = run
    answered = answer(site, window, asked("fleet", "Allocated and idle"), defaults(FLEET))[""]
    assert 1.0 <= answered < 1.6


@pytest.mark.parametrize("board", ["fleet", "energy"])
def test_a_gap_that_goes_on_is_time_not_measured(run: tuple[Site, Window], board: str) -> None:
    site, window = run
    values = defaults(BY_NAME[f"gpu-exporter-{board}"]) | {"instance": MIXED}
    devices = len(site.machines[MIXED].devices)
    answered = answer(site, window, asked(board, "Time measured"), values)[""]
    assert answered == pytest.approx((devices - 1) / devices, abs=0.03)


def test_no_rule_fails(run: tuple[Site, Window]) -> None:
    rules = [rule for group in run[0].server.api("rules")["groups"] for rule in group["rules"]]
    assert rules
    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []
