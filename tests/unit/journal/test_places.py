"""Which directories the journal lies in."""

from pathlib import Path

import pytest

from exporter.config import Config, ConfigError, JournalConfig, load_config, override
from exporter.journal import Places, places
from exporter.journal.places import boot_id

A, B = Path("/run/a"), Path("/var/lib/b")
SYSTEMD = {"RUNTIME_DIRECTORY": "/run/a:/run/a2", "STATE_DIRECTORY": "/var/lib/b"}


@pytest.mark.parametrize(
    ("config", "environment", "expected"),
    [
        (JournalConfig(), {}, None),
        (JournalConfig(), {"RUNTIME_DIRECTORY": "", "STATE_DIRECTORY": ""}, None),
        (JournalConfig(), SYSTEMD, Places(A, B)),
        (JournalConfig(directory="/x"), {}, Places(Path("/x"), Path("/x"))),
        (JournalConfig(state_directory="/y"), {}, Places(Path("/y"), Path("/y"))),
        (JournalConfig(directory="/x", state_directory="/y"), SYSTEMD, Places(Path("/x"), Path("/y"))),
        (JournalConfig(directory="/x"), SYSTEMD, Places(Path("/x"), B)),
        (JournalConfig(state_directory="/y"), SYSTEMD, Places(A, Path("/y"))),
        (JournalConfig(), {"STATE_DIRECTORY": "/var/lib/b"}, Places(B, B)),
    ],
)
def test_options_win_over_what_systemd_gives_and_one_directory_serves_as_both(
    config: JournalConfig, environment: dict[str, str], expected: Places | None
) -> None:
    assert places(config, environment) == expected


def test_a_directory_of_a_file_is_beside_that_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("journal: {directory: here, state_directory: /there}")
    assert load_config(file).journal == JournalConfig(directory=str(tmp_path / "here"), state_directory="/there")


def test_a_directory_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^--journal\.directory: expected the path of a directory$"):
        override(Config(), {"journal": {"directory": ""}}, {"journal.directory": "--journal.directory"})


def test_the_boot_is_what_the_kernel_says(tmp_path: Path) -> None:
    kernel = tmp_path / "proc/sys/kernel/random"
    kernel.mkdir(parents=True)
    (kernel / "boot_id").write_text("95e3c812-cf00\n")
    assert boot_id(tmp_path) == "95e3c812-cf00"
    assert boot_id() == boot_id() != ""
