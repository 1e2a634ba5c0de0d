"""A secret of the web configuration is told nowhere: by no message, log or page, whatever is wrong with the file."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.integration.daemon import ROOT, Daemon
from tests.integration.web_files import HASH, Authority, write

Start = Callable[..., Daemon]
SECRET = "S3cr3tPl4nted"  # noqa: S105 -- planted
HASHED = f"$2b$04${SECRET}{HASH[7 + len(SECRET) :]}"
PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRET}{'A' * 40}\n-----END PRIVATE KEY-----\n"
FOLDED = PEM.replace("\n", "\n    ")
BROKEN = {
    "a hash among users that are no mapping": f"basic_auth_users: ['{HASHED}']",
    "a password instead of a hash": f"basic_auth_users: {{alice: {SECRET}}}",
    "a hash with a foreign type": f"basic_auth_users: {{alice: !secret {HASHED}}}",
    "a hash with an anchor": f"basic_auth_users: {{alice: &{SECRET} x, bob: *{SECRET}}}",
    "a hash twice": f"basic_auth_users: {{alice: '{HASHED}', alice: '{HASHED}'}}",
    "a hash under a foreign key": f"basic_auth_users: {{alice: '{HASHED}'}}\nbasic_auth: {{alice: '{HASHED}'}}",
    "a hash for a name": f"basic_auth_users: {{'{HASHED}': alice}}",
    "a hash with a colon for a name": f"basic_auth_users: {{'alice:{HASHED}': x}}",
    "a user and a hash as a name": f"basic_auth_users: ? alice {HASHED}\n",
    "a hash that is not closed": f"basic_auth_users: {{alice: '{HASHED}",
    "a hash that is too dear": f"basic_auth_users: {{alice: '{HASHED.replace('$04', '$31')}'}}",
    "a hash in the wrong section": f"rate_limit: {{interval: '{HASHED}', burst: '{HASHED}'}}",
    "a hash for a section": f"basic_auth_users: '{HASHED}'",
    "a hash for a section of another kind": f"http_server_config: '{HASHED}'\nrate_limit: ['{HASHED}']",
    "a key that is none": f"tls_server_config:\n  cert: x\n  key: |\n    {FOLDED}",
    "a key for the path of a key": f"tls_server_config:\n  cert_file: server.pem\n  key_file: |\n    {FOLDED}",
    "a key on one line for the path": f"tls_server_config: {{cert_file: server.pem, key_file: {SECRET}}}",
    "a key that is not indented": f"tls_server_config:\n  cert: x\n  key: |\n{PEM}",
    "a key without a bar": f"tls_server_config:\n  cert: x\n  key: {FOLDED}",
    "a key for a certificate": f"tls_server_config:\n  cert: |\n    {FOLDED}\n  key_file: server.key\n",
    "a key for a CA": (
        "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
        f"  client_auth_type: RequireAndVerifyClientCert\n  client_ca: |\n    {FOLDED}"
    ),
    "a key in a list": f"tls_server_config: {{cert: [{SECRET}], key: [{SECRET}], client_ca: {{a: {SECRET}}}}}",
    "a tag": f"basic_auth_users: {{alice: !{SECRET}!x y}}",
    "a directive": f"%{SECRET} x\n---\nbasic_auth_users: {{alice: x}}",
    "an alias": f"basic_auth_users: {{alice: *{SECRET}}}",
    "a NUL": f"basic_auth_users: {{alice: '{HASHED}\0'}}",
    "a header": f"http_server_config: {{headers: {{Authorization: {SECRET}, X-Frame-Options: {SECRET}}}}}",
    "all of it": SECRET,
    "a list": f"- {SECRET}\n- {HASHED}",
}
MAY_BE_TOLD = {"a key on one line for the path", "a header"}
"""A path and a response header are no secrets, and to be found wrong they have to be told."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("web")
    Authority(made)
    return made


def checked(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "exporter", "check-config", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", Random(1).sample(sorted(BROKEN), 6))
def test_the_command_tells_what_is_wrong_in_lines_and_no_secret(name: str, folder: Path) -> None:
    path = folder / "checked.yml"
    path.write_text(BROKEN[name])
    done = checked(path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert all(line.startswith(f"gpu-exporter: {path}: ") for line in done.stderr.splitlines())
    assert name in MAY_BE_TOLD or SECRET not in done.stderr


def test_a_running_daemon_tells_no_secret_whatever_its_file_becomes(start_daemon: Start, folder: Path) -> None:
    web, config = folder / "web.yml", folder / "c.yaml"
    write(web, f"http_server_config: {{headers: {{X-Frame-Options: deny}}}}\n#{SECRET}\n")
    write(config, "web: {config_file: web.yml}\nlog: {level: debug}\n")
    daemon = start_daemon("--provider=simulated", f"--config.file={config}")
    for name, text in BROKEN.items():
        before = len(daemon.log)
        write(web, text)
        daemon.process.send_signal(signal.SIGHUP)
        time.sleep(0.55)  # reloads that follow each other closer than that are one
        daemon.until(lambda: "reloaded" in daemon.log[before:])  # noqa: B023 -- used at once
        told = daemon.log[before:] + "".join(
            reply.body.decode() + str(reply.headers)
            for reply in map(daemon.get, ("/", "/metrics", "/-/ready", "/nowhere"))
        )
        assert "not reloaded" in told, name
        assert "Traceback" not in told, name
        assert name in MAY_BE_TOLD or SECRET not in told, (name, [line for line in told.splitlines() if SECRET in line])
    # Good ones, which are used from then on.
    write(web, f"basic_auth_users: {{alice: '{HASH}', bob: '{HASHED}'}}\n")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.until(lambda: "the configuration is reloaded" in daemon.log)
    for path in ("/", "/metrics", "/nowhere"):
        reply = daemon.get(path, {"Authorization": "Basic Ym9iOlMzY3IzdFBsNG50ZWQ="})  # bob with the secret as password
        assert reply.status == 401
        assert SECRET not in reply.body.decode() + str(reply.headers)
    assert all(SECRET not in line and HASH not in line for line in daemon.log.splitlines() if "level=debug" in line)
