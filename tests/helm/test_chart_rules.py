"""The chart has the rules of config/prometheus, and each of them can be switched off or changed."""

from pathlib import Path

import pytest
import yaml

from tests.helm.chart import CHART, ROOT, Object, one, render, without_dashboards

pytestmark = pytest.mark.integration

BOTH = {"dcgm": True, "amd": True}
"""Rules of the names that other exporters have, which are left out by default."""


def shipped(but: str = "nothing") -> dict[str, Object]:
    """Return the rules by name, without those of files whose names begin like this."""
    files = [path for path in sorted((ROOT / "config/prometheus").glob("*.yaml")) if not path.name.startswith(but)]
    groups = [group for path in files for group in _groups(path)]
    return {rule.get("alert") or rule["record"]: rule for group in groups for rule in group["rules"]}


def _groups(path: Path) -> list[Object]:
    found: list[Object] = yaml.safe_load(path.read_text())["groups"]
    return found


def rendered_rules(found: list[Object]) -> dict[str, Object]:
    groups = one(found, "PrometheusRule")["spec"]["groups"]
    return {rule.get("alert") or rule["record"]: rule for group in groups for rule in group["rules"]}


def test_all_rules_are_rendered_as_they_are_shipped(tmp_path: Path) -> None:
    wanted = {"enabled": True, "compatibility": BOTH}
    assert rendered_rules(render(tmp_path, {"prometheusRule": wanted})) == shipped()


def test_names_of_other_exporters_are_recorded_only_where_they_are_asked_for(tmp_path: Path) -> None:
    assert rendered_rules(render(tmp_path, {"prometheusRule": {"enabled": True}})) == shipped(but="compatibility-")
    for asked, other in (("dcgm", "amd"), ("amd", "dcgm")):
        wanted = {"enabled": True, "compatibility": {asked: True}}
        found = rendered_rules(render(tmp_path, {"prometheusRule": wanted}))
        assert found == shipped(but=f"compatibility-{other}")


def test_each_exporter_whose_names_are_recorded_can_be_chosen() -> None:
    files = {path.stem.partition("-")[2] for path in (ROOT / "config/prometheus").glob("compatibility-*.yaml")}
    chosen = yaml.safe_load((CHART / "values.yaml").read_text())["prometheusRule"]["compatibility"]
    assert chosen == dict.fromkeys(files, False)


def test_each_rule_can_be_switched_off(tmp_path: Path) -> None:
    names = list(shipped())
    # One render for every other rule, and one for the rest.
    for off in (names[::2], names[1::2]):
        rules = {name: {"enabled": False} for name in off}
        found = rendered_rules(
            render(tmp_path, {"prometheusRule": {"enabled": True, "compatibility": BOTH, "rules": rules}})
        )
        assert set(found) == set(names) - set(off)


def test_rules_can_be_changed(tmp_path: Path) -> None:
    chart = without_dashboards(tmp_path)
    rule = (
        "{alert: Hot, expr: 'gpu_temperature_celsius{sensor=\"edge\"} >= 95.5', for: 5m, labels: {severity: critical}}"
    )
    (chart / "files/prometheus/more.yaml").write_text(f"groups: [{{name: more, rules: [{rule}]}}]\n")
    changes = {"threshold": 80, "for": "1m", "severity": "info", "labels": {"team": "gpu"}, "annotations": {"a": "b"}}
    wanted = {"enabled": True, "rules": {"Hot": changes}}
    hot = rendered_rules(render(tmp_path, {"prometheusRule": wanted}, chart=chart))["Hot"]
    assert hot["expr"] == 'gpu_temperature_celsius{sensor="edge"} >= 80'
    assert (hot["for"], hot["labels"]) == ("1m", {"severity": "info", "team": "gpu"})
    other = {"GpuDown": {"expr": "gpu_up == 0", "severity": "warning", "annotations": {"summary": "down"}}}
    found = rendered_rules(render(tmp_path, {"prometheusRule": {"enabled": True, "rules": other}}))["GpuDown"]
    assert (found["expr"], found["labels"]["severity"]) == ("gpu_up == 0", "warning")
    assert found["annotations"]["summary"] == "down"
    assert found["annotations"]["description"] == shipped()["GpuDown"]["annotations"]["description"]
