"""The part of the chart's values.schema.json that follows from the exporter's own configuration and from values.yaml.

`python -m tests.helm.schema` writes it into the file.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import yaml

from exporter.config import Config
from exporter.providers import PROVIDERS

CHART = Path(__file__).parents[2] / "helm/gpu-exporter"
FILE = CHART / "values.schema.json"
SET_BY_OTHER_VALUES = {
    "": {"journal", "providers", "simulate"},
    "web": {"config_file", "listen_addresses", "systemd_socket", "telemetry_path"},
    "attribution": {
        "api_server", "enabled", "job_files", "kubelet_socket", "pod_logs", "proc", "slurm_environment",
    },
}  # fmt: skip
"""Options that the chart sets itself, so that `config` must not, by section."""
LEFT_OUT = ("default", "title", "required")
FREE = {
    "affinity", "config", "nodeSelector", "podSecurityContext", "resources", "securityContext", "tolerations",
    "updateStrategy.rollingUpdate",
}  # fmt: skip
"""Values whose defaults may be taken away, by null: those that are the configuration's or Kubernetes' own."""
OPEN = {"probes.liveness", "probes.readiness", "probes.startup"}
"""Those that must be there, with any of their keys."""


def generated() -> dict[str, Any]:
    """Return the definitions `config`, `providers` and `complete`."""
    (root,), parts = msgspec.json.schema_components([Config])
    sections = _plain(root, parts)["properties"]
    for section, names in SET_BY_OTHER_VALUES.items():
        within = sections if not section else sections[section]["properties"]
        for name in names:
            del within[name]
    config = {"type": "object", "additionalProperties": False, "properties": sections}
    # Simulated GPUs have a value of their own.
    real = sorted(set(PROVIDERS) - {"simulated"})
    return {
        "config": config,
        "providers": {"type": "array", "uniqueItems": True, "items": {"enum": real}},
        "complete": _complete(yaml.safe_load((CHART / "values.yaml").read_text())),
    }


def _complete(values: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Return a schema that demands the defaults that templates count on: all but those that are empty, and FREE ones.

    One is missing where it is null, or with values of an older chart (`helm upgrade --reuse-values`).
    """
    wanted = {key: value for key, value in values.items() if value not in ("", [], {}) and above + key not in FREE}
    maps = {key: value for key, value in wanted.items() if isinstance(value, dict) and above + key not in OPEN}
    below = {key: _complete(value, f"{above}{key}.") for key, value in maps.items()}
    return {"type": "object", "required": list(wanted), **({"properties": below} if below else {})}


def _plain(schema: Any, parts: dict[str, Any]) -> Any:
    """Return a schema with what it refers to in it, and no more than what it demands."""
    if isinstance(schema, list):
        return [_plain(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _plain(parts[schema["$ref"].rpartition("/")[2]], parts)
    return {key: _plain(value, parts) for key, value in schema.items() if key not in LEFT_OUT}


def text() -> str:
    """Return the file as it should be."""
    schema = json.loads(FILE.read_text())
    schema["$defs"].update(generated())
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
