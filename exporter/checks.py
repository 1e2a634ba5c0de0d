"""Would the daemon start with this file? Asked of a configuration with what it names, and of what it can name."""

from pathlib import Path

from exporter.config import Config, ConfigError, Kind, kind_of_file, parse_config
from exporter.providers.simulated.scenario import ScenarioError, load_scenario, read_scenario
from exporter.strict_yaml import MANY_VALUES, YamlError, load, read
from exporter.web.guard import Guard


def check(path: str) -> Kind:
    """Return what kind of file it is found to be, by its keys. Raises ConfigError with all that is wrong in it."""
    try:
        data = read(path)
        tree = load(data, most=MANY_VALUES).value
    except OSError as e:
        raise ConfigError([f"{path}: {e.strerror}"]) from None
    except YamlError as e:
        raise ConfigError([f"{path}: {e}"]) from None
    found = kind_of_file(tree)
    if found == "web configuration":
        Guard.load(path)
    elif found == "scenario":
        try:
            load_scenario(data, name=path)
        except ScenarioError as e:
            raise ConfigError(e.messages) from None
    else:
        check_named(parse_config(data, path))
    return found


def check_named(config: Config) -> None:
    """Raise ConfigError with what is wrong in the files that the configuration names."""
    problems = _in_scenario(config.simulate)
    if config.web.config_file is not None:
        try:
            Guard.load(config.web.config_file)
        except ConfigError as e:
            problems += e.messages
    if problems:
        raise ConfigError(problems)


def check_scenario(config: Config) -> None:
    """Raise ConfigError with what is wrong in the scenario: it is loaded in another process, which has no terminal."""
    if problems := _in_scenario(config.simulate):
        raise ConfigError(problems)


def _in_scenario(name: str | None) -> list[str]:
    if name is None:
        return []
    try:
        read_scenario(Path(name), name=name)
    except (OSError, ValueError) as e:  # ValueError: the path holds what no path can
        reason = e.strerror if isinstance(e, OSError) else "no file can have this name"
        return [f"{name}: {reason}"]
    except ScenarioError as e:
        return list(e.messages)
    return []
