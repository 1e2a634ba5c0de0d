"""The landing page: what a person wants to know who opens the exporter's address in a browser."""

import platform
from html import escape
from urllib.parse import quote

from exporter import __version__
from exporter.model import DeviceSnapshot, Snapshot, World
from exporter.web.readiness import age

MAX_DEVICES = 512
"""Rows per provider; no host has as many, so more are a mistake that must not make the page unbounded."""

MAX_TEXT = 200
"""Characters shown of a string that a vendor's library or a process gave us."""

_STYLE = """
body { font-family: system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; color-scheme: light dark }
table { border-collapse: collapse; width: 100%; margin-bottom: 2em }
th, td { text-align: left; padding: .3em .8em .3em 0; border-bottom: 1px solid #8884 }
td:last-child { overflow-wrap: anywhere; padding-right: 0 }
.bad { color: #c33; font-weight: 600 }
.good { color: #282; font-weight: 600 }
"""


def landing_page(world: World, telemetry_path: str, now: float) -> bytes:
    """Return HTML. `now` is Unix time. All strings from devices are escaped and cut."""
    link = escape(f".{quote(telemetry_path)}")  # relative, for those who serve us under a path of theirs
    parts = [
        "<!DOCTYPE html>\n",
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        '<meta name="viewport" content="width=device-width">\n',
        f"<title>gpu-exporter</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>gpu-exporter</h1>\n",
        f"<p>Version {escape(__version__)}, Python {escape(platform.python_version())}</p>\n",
        f'<p><a href="{link}">Metrics</a> · <a href="./-/healthy">Health</a> · <a href="./-/ready">Readiness</a></p>\n',
    ]
    if world.released:
        parts.append('<p class="bad">The devices are released on request.</p>\n')
    if not world.config_reloaded:
        parts.append('<p class="bad">The configuration could not be reloaded; the log says why.</p>\n')
    if world.workers_abandoned:
        parts.append(f'<p class="bad">Child processes that could not be killed: {world.workers_abandoned}</p>\n')
    parts.extend(_provider(snapshot, now) for snapshot in world.snapshots)
    parts.append("</body>\n</html>\n")
    return "".join(parts).encode("utf-8", "replace")


def _provider(snapshot: Snapshot, now: float) -> str:
    state = '<span class="good">up</span>' if snapshot.up else f'<span class="{_severity(snapshot)}">down</span>'
    lines = [f"<h2>{_text(snapshot.provider)}: {state}</h2>\n"]
    if snapshot.reason:
        lines.append(f"<p>{_text(snapshot.reason)}</p>\n")
    facts = [f"Library {_text(snapshot.library_version)}"] if snapshot.library_version is not None else []
    if snapshot.devices_expected is not None:
        facts.append(f"{len(snapshot.devices)} of {snapshot.devices_expected} devices on PCI")
    facts.append(f"Last reading {age(snapshot.last_sample_timestamp, now)}")
    lines.append(f"<p>{', '.join(facts)}</p>\n")
    if snapshot.devices:
        lines.append("<table>\n<tr><th>GPU</th><th>Model</th><th>State</th><th>Last sample</th><th>UUID</th></tr>\n")
        lines.extend(_device(device, now) for device in snapshot.devices[:MAX_DEVICES])
        lines.append("</table>\n")
    if len(snapshot.devices) > MAX_DEVICES:
        lines.append(f"<p>and {len(snapshot.devices) - MAX_DEVICES} more</p>\n")
    return "".join(lines)


def _device(device: DeviceSnapshot, now: float) -> str:
    return (
        f"<tr><td>{_text(device.gpu)}</td><td>{_text(device.device.model)}</td>"
        f'<td class="{"good" if device.state.answers else "bad"}">{device.state.value}</td>'
        f"<td>{age(device.last_sample_timestamp, now)}</td><td>{_text(device.device.key)}</td></tr>\n"
    )


def _severity(snapshot: Snapshot) -> str:
    # One that nobody asked for, on a host without its hardware, is down and nothing is wrong.
    return "bad" if snapshot.wanted else ""


def _text(value: str | None) -> str:
    if value is None:
        return "-"
    return escape(value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}…")
