"""The part of the chart's values.schema.json that follows from the exporter's own configuration.

`python -m tests.helm.schema` writes it into the file.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from exporter.config import Config
from exporter.providers import PROVIDERS

FILE = Path(__file__).parents[2] / "helm/gpu-exporter/values.schema.json"
SET_BY_OTHER_VALUES = {
    "": {"journal", "providers", "simulate"},
    "web": {"config_file", "listen_addresses", "systemd_socket", "telemetry_path"},
    "attribution": {
        "api_server", "enabled", "job_files", "kubelet_socket", "pod_logs", "proc", "slurm_environment",
    },
}  # fmt: skip
"""Options that the chart sets itself, so that `config` must not, by section."""
LEFT_OUT = ("default", "title", "required")


def generated() -> dict[str, Any]:
    """Return the definitions `config` and `providers`."""
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
    }


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
