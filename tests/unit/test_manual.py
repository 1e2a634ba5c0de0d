"""Is `--help` right and whole, so that it can be the manual page?"""

import re
import shlex
from pathlib import Path

import pytest

from exporter import manual
from exporter.cli import OPTIONS, main
from exporter.config import Config
from tests.unit.test_energy_docs import tables

ROOT = Path(__file__).parents[2]
COMMANDS = ("serve", "measure", "doctor", "check-config", "metrics")
TEXTS = {name: text for name, text in vars(manual).items() if name.isupper()}


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


def section(text: str, name: str) -> str:
    (found,) = re.findall(rf"^{name}:\n((?:(?:  .*)?\n)+)", text, re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_it_fits_a_terminal_and_says_what_the_command_is_for(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, *command.split())
    assert max(map(len, text.splitlines())) <= 80
    assert any(description in text for description in TEXTS.values())


def test_every_option_has_a_help_and_every_command_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(re.search(rf"^    {command}\b", shown(capsys), re.MULTILINE) for command in COMMANDS)
    text = shown(capsys, "serve")
    for option in OPTIONS.values():
        # What stands beside it, or below where the option is long.
        assert re.search(rf"^  {re.escape(option)}\b.*\n? +\S", text, re.MULTILINE), option


def test_exit_codes_are_those_of_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    said = dict(re.findall(r"^  (\d+) +(.*)$", section(shown(capsys, "serve"), "exit status"), re.MULTILINE))
    page = (ROOT / "docs/operations.md").read_text()
    (table,) = [table for table in tables(page) if "exit code" in table[0]]
    assert {row["exit code"] for row in table} == set(said)


def test_signals_are_those_of_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    said = set(re.findall(r"SIG[A-Z0-9]+", section(shown(capsys, "serve"), "signals")))
    (table,) = [t for t in tables((ROOT / "docs/operations.md").read_text()) if "signal" in t[0]]
    assert said == {name for row in table for name in row["signal"].split(", ")}


def test_variables_and_options_of_the_configuration_exist() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "exporter").rglob("*.py") if path.name != "manual.py")
    text = "\n".join(TEXTS.values())
    variables = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", text))
    assert len(variables) > 5
    assert {name for name in variables if f'"{name}"' not in sources} == set()
    sections = "|".join(Config.__struct_fields__)
    named = re.findall(rf"\b({sections})\.([a-z]+_[a-z_]+)\b", text)
    assert named
    assert all(name in getattr(Config(), section).__struct_fields__ for section, name in named)


def test_paths_are_served() -> None:
    paths = set(re.findall(r"^  (/\S*)", manual.SERVE_MORE, re.MULTILINE))
    assert paths == set(re.findall(r"^\| `(/[^`]*)` \|", (ROOT / "README.md").read_text(), re.MULTILINE))


@pytest.mark.parametrize("line", re.findall(r"^  (gpu-exporter.*)$", "\n".join(TEXTS.values()), re.MULTILINE))
def test_an_example_is_taken(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line)[1:]
    if "--" in words or words[:1] in (["measure"], ["doctor"], ["check-config"]):
        command, options = words[0], words[1 : words.index("--")] if "--" in words else words[1:]
    else:
        command, options = "serve", words
    file = tmp_path / "gpu-exporter.yaml"
    file.write_text("")
    options = [str(file) if word.startswith("/etc/") else word for word in options]
    options = options[: options.index(">")] if ">" in options else options  # what a shell takes
    if command == "check-config":
        assert main([command, *options]) == 0
        return
    # One mistake, and nothing else, is what is refused.
    wrong = ["--provider=none"] if "--from-log" not in options else ["--repeat=2"]
    behind = ["--", "true"] if command == "measure" and "--from-log" not in options else []
    assert main([command, *options, *wrong, *behind]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "none" in said or "--repeat" in said
