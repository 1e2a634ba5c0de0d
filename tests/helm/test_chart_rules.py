"""The chart has the rules of config/prometheus, and each of them can be switched off or changed."""

from pathlib import Path

import pytest
import yaml

from tests.helm.chart import ROOT, Object, one, render, without_dashboards

pytestmark = pytest.mark.integration


def shipped() -> dict[str, Object]:
    groups = [group for path in sorted((ROOT / "config/prometheus").glob("*.yaml")) for group in _groups(path)]
    return {rule.get("alert") or rule["record"]: rule for group in groups for rule in group["rules"]}


def _groups(path: Path) -> list[Object]:
    found: list[Object] = yaml.safe_load(path.read_text())["groups"]
    return found


def rendered_rules(found: list[Object]) -> dict[str, Object]:
    groups = one(found, "PrometheusRule")["spec"]["groups"]
    return {rule.get("alert") or rule["record"]: rule for group in groups for rule in group["rules"]}


def test_all_rules_are_rendered_as_they_are_shipped(tmp_path: Path) -> None:
    assert rendered_rules(render(tmp_path, {"prometheusRule": {"enabled": True}})) == shipped()


def test_each_rule_can_be_switched_off(tmp_path: Path) -> None:
    names = list(shipped())
    # One render for every other rule, and one for the rest.
    for off in (names[::2], names[1::2]):
        rules = {name: {"enabled": False} for name in off}
        found = rendered_rules(render(tmp_path, {"prometheusRule": {"enabled": True, "rules": rules}}))
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
