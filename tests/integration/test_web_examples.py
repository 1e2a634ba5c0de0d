"""The examples of files of `--web.config.file` are good for promtool, for check-config and for serving."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from exporter.config import ConfigError
from exporter.web.guard import Guard
from tests.integration import prometheus
from tests.integration.daemon import ROOT
from tests.integration.test_web_login import ask, header
from tests.integration.web import PAGE, run, serving
from tests.integration.web_files import Authority

pytestmark = pytest.mark.integration

EXAMPLES = sorted((ROOT / "config/web-config").glob("*.yml"))
NEWER = {"client_allowed_sans", "rate_limit"}
"""What Prometheus 2.42 did not know yet."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("examples"))
    made.signed("client", "DNS:prometheus.example.org")
    shutil.copy(made.ca, made.directory / "clients-ca.pem")
    for example in EXAMPLES:
        shutil.copy(example, made.directory)
    return made


def promtool(major: int, path: Path) -> tuple[int, str]:
    command = [prometheus.find(major).promtool, "check", "web-config", str(path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return said.returncode, said.stdout + said.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_good_for_promtool(example: Path, authority: Authority) -> None:
    path = authority.directory / example.name
    code, said = promtool(3, path)
    assert code == 0, said
    code, said = promtool(2, path)
    unknown = set(re.findall(r"field (\w+) not found", said))
    assert unknown == NEWER & set(re.findall(r"^ *(\w+):", example.read_text(), re.MULTILINE))
    if code:
        # It complains about these alone.
        assert len(said.strip().splitlines()) == 1 + len(unknown)


@pytest.mark.parametrize("text", ["tls_server_confg: {}", "rate_limits: {}", "http_server_config: {headers: {A: b}}"])
def test_what_promtool_refuses_is_refused_by_us(text: str, tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    path.write_text(text)
    assert promtool(3, path)[0] != 0
    with pytest.raises(ConfigError, match=r"web\.yml"):
        Guard.load(str(path))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_serves_the_client_that_it_is_for_and_no_other(example: Path, authority: Authority) -> None:
    guard = Guard.load(str(authority.directory / example.name))
    without_login = 401 if "basic_auth_users" in example.read_text() else 200

    async def test() -> None:
        async with serving(guard=guard) as served:
            client = await served.connect(tls=authority.client("client"))
            answer = await ask(client, header(b"prometheus", b"change me"))
            assert answer.body == PAGE
            assert (await ask(client)).status == without_login
            plain = await served.connect()
            plain.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await plain.ended()).startswith(b"HTTP/1.0 400 ")

    run(test)
