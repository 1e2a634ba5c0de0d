"""Arguments of the command, and what each of its commands starts.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration; of `serve` also 3, after a failure that it was told not to
outlast; of `measure` that of the command it ran, 125 when none was started; of `doctor` 0 fine, 1 degraded, 2 unusable;
130 interrupted before there was anything to end in order.
"""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from exporter import __version__, early, manual
from exporter.config import Config, ConfigError, load_config, override
from exporter.lean import instead
from exporter.measure.options import add_options, misfit
from exporter.providers import PROVIDERS
from exporter.validation import printable

OPTIONS: Mapping[str, str] = {
    "providers": "--provider",
    "simulate": "--simulate",
    "web.listen_addresses": "--web.listen-address",
    "web.telemetry_path": "--web.telemetry-path",
    "web.config_file": "--web.config.file",
    "web.systemd_socket": "--web.systemd-socket",
    "journal.directory": "--journal.directory",
    "journal.state_directory": "--journal.state-directory",
    "log.level": "--log.level",
    "log.format": "--log.format",
}
"""The option that sets a key of the configuration."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. The first argument names it; without a name it is `serve`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help", "--version")):
        given.insert(0, "serve")
    # What stands behind the first -- is the command to be measured, and none of our options.
    command = given[given.index("--") + 1 :] if given[0] == "measure" and "--" in given else None
    options = _parser().parse_args(given if command is None else given[: given.index("--")])
    options.words = command
    chosen: Callable[[argparse.Namespace], int] = options.command
    if chosen is not _serve:
        early.let_go()
    try:
        return chosen(options)
    except ConfigError as e:
        for message in e.messages:
            _tell(message)
        return 2
    except KeyboardInterrupt:  # before the daemon listens to signals: most of a start is spent on imports
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu-exporter",
        description=manual.COMMAND,
        epilog=manual.COMMAND_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"gpu-exporter {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    serve = _add_command(
        commands, "serve", _serve, "serve metrics over HTTP (the default)", manual.SERVE, manual.SERVE_MORE
    )
    _add_options(serve)
    measure = _add_command(
        commands,
        "measure",
        _measure,
        "measure the joules of a command, with a verdict",
        manual.MEASURE,
        manual.MEASURE_MORE,
        "gpu-exporter measure [options] -- COMMAND...\n       gpu-exporter measure --from-log FILE [options]",
    )
    _add_sources(measure)
    add_options(measure)
    doctor = _add_command(
        commands,
        "doctor",
        _doctor,
        "tell what was found, what each GPU can tell, and why the rest is missing",
        manual.DOCTOR,
        manual.DOCTOR_MORE,
    )
    _add_sources(doctor)
    doctor.add_argument(
        "--json",
        dest="as_json",
        action="store_true",
        help="print all of it as JSON, with a redacted recording of what the libraries and the kernel answered",
    )
    check = _add_command(
        commands,
        "check-config",
        _check_config,
        "tell what is wrong with a configuration file",
        manual.CHECK_CONFIG,
        manual.CHECK_CONFIG_MORE,
    )
    check.add_argument("file", metavar="FILE", help="configuration, scenario or web configuration")
    _add_command(commands, "metrics", _metrics, "print the reference of all metrics", manual.METRICS)
    return parser


def _add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    function: Callable[[argparse.Namespace], int],
    summary: str,
    description: str,
    more: str = "",
    usage: str | None = None,
) -> argparse.ArgumentParser:
    added = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=more,
        usage=usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    added.set_defaults(command=function)
    return added


def _add_sources(parser: argparse.ArgumentParser) -> None:
    read = parser.add_argument_group("what is read")
    read.add_argument(
        "--config.file",
        dest="file",
        metavar="FILE",
        help="configuration, in YAML: every option; those of the command line win over it",
    )
    read.add_argument(
        "--provider",
        dest="providers",
        action="append",
        metavar="NAME",
        help=f"open this one and no others ({', '.join(PROVIDERS)}); may be repeated; default: every real one that "
        "opens",
    )
    read.add_argument(
        "--simulate",
        metavar="SCENARIO.yaml",
        help="take simulated GPUs that live this scenario; without --provider, no others",
    )


def _add_options(serve: argparse.ArgumentParser) -> None:
    _add_sources(serve)
    web = serve.add_argument_group("how it is served")
    web.add_argument(
        "--web.listen-address",
        dest="web.listen_addresses",
        action="append",
        metavar="HOST:PORT",
        help="default 127.0.0.1:10042; :PORT is all interfaces, [::1]:PORT is IPv6, port 0 a free one; may be repeated",
    )
    web.add_argument(
        "--web.telemetry-path", dest="web.telemetry_path", metavar="PATH", help="of the page; default /metrics"
    )
    web.add_argument(
        "--web.config.file",
        dest="web.config_file",
        metavar="FILE",
        help="TLS, login, response headers and rate limit, in the format of Prometheus' exporter toolkit; default: "
        "plain HTTP for everyone",
    )
    web.add_argument(
        "--web.systemd-socket",
        dest="web.systemd_socket",
        action=argparse.BooleanOptionalAction,
        help="serve on the sockets that systemd passes, instead of on the addresses",
    )
    totals = serve.add_argument_group("where totals of energy are kept")
    totals.add_argument(
        "--journal.directory",
        dest="journal.directory",
        metavar="DIR",
        help="over restarts, on tmpfs by preference; default $RUNTIME_DIRECTORY, else the state directory; with "
        "neither, totals begin at 0 at each start",
    )
    totals.add_argument(
        "--journal.state-directory",
        dest="journal.state_directory",
        metavar="DIR",
        help="over reboots; default $STATE_DIRECTORY, else the directory above",
    )
    log = serve.add_argument_group("the log, on standard error")
    log.add_argument("--log.level", dest="log.level", metavar="LEVEL", help="debug, info (default), warn or error")
    log.add_argument("--log.format", dest="log.format", metavar="FORMAT", help="logfmt (default) or json")
    serve.add_argument("--version", action="version", version=f"gpu-exporter {__version__}")


def _serve(options: argparse.Namespace) -> int:
    def read() -> Config:
        return _config(options.file, vars(options))

    config = _checked(read())
    from exporter import logs  # noqa: PLC0415 -- each command loads no more than it needs

    # asyncio does without ssl where Python was built without it. OpenSSL is 4 of 22 MiB, and whoever wants TLS has to
    # start the daemon anew.
    plain = config.web.config_file is None
    with instead("ssl", None) if plain else contextlib.nullcontext():
        from exporter.serve import serve  # noqa: PLC0415 -- as above

    logs.configure(config.log.level, config.log.format)
    return serve(config, read)


def _measure(options: argparse.Namespace) -> int:
    gpus = tuple(name.strip() for names in options.gpus or () for name in names.split(",") if name.strip())
    problem = misfit(options)
    if problem:
        _tell(f"measure: {problem}")
        return 2
    if options.from_log is not None:
        from exporter.measure.afterwards import LogRequest, measure_log  # noqa: PLC0415 -- as above

        text, status = measure_log(
            LogRequest(
                log=options.from_log,
                start=options.start,
                end=options.end,
                gpus=gpus,
                interval=options.interval,
                tokens=options.tokens,
                queries=options.queries,
                output=options.output,
                markdown=options.markdown,
            )
        )
        return (_write(text) if text else 0) or status
    config = _checked(_config(options.file, vars(options)))
    from exporter.measure.measurement import Request  # noqa: PLC0415 -- as above
    from exporter.measure.run import measure  # noqa: PLC0415 -- as above

    return measure(
        config,
        Request(
            command=tuple(options.words),
            gpus=gpus,
            interval=options.interval,
            repeat=options.repeat,
            idle_seconds=options.idle_baseline,
            tokens=options.tokens,
            queries=options.queries,
            tokens_from=options.tokens_from,
            output=options.output,
            markdown=options.markdown,
        ),
    )


def _doctor(options: argparse.Namespace) -> int:
    config = _checked(_config(options.file, vars(options)))
    from exporter.doctor.command import doctor  # noqa: PLC0415 -- as above

    text, code = doctor(config, as_json=options.as_json)
    return _write(text) or code


def _check_config(options: argparse.Namespace) -> int:
    from exporter.checks import check  # noqa: PLC0415 -- as above

    return _write(f"{options.file}: valid {check(options.file)}\n")


def _metrics(_: argparse.Namespace) -> int:
    from exporter.reference import markdown  # noqa: PLC0415 -- as above

    return _write(markdown())


def _write(text: str) -> int:
    """Write to standard output and return the exit code."""
    if sys.stdout is None:
        _tell("cannot write: standard output is closed")
        return 1
    try:
        # Whatever the locale is: the name of a file need not be text.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as e:
        # Python tries to write the rest at its end; there it must not fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(e, BrokenPipeError):  # whoever reads has seen enough
            return 0
        _tell(f"cannot write: {e.strerror}")
        return 1
    return 0


def _tell(message: str) -> None:
    """Write a line to standard error, if there is one."""
    if sys.stderr is not None:  # print would take standard output instead
        with contextlib.suppress(OSError):
            print(f"gpu-exporter: {printable(message)}", file=sys.stderr)


def _config(file: str | None, options: Mapping[str, Any]) -> Config:
    """Return the file with the options laid over it. Raises ConfigError with what is wrong in both."""
    config = Config()
    problems: list[str] = []
    if file is not None:
        try:
            config = load_config(file)
        except ConfigError as e:
            problems += e.messages
    try:
        config = override(config, _tree(options), OPTIONS)
    except ConfigError as e:
        problems += e.messages
    if problems:
        raise ConfigError(problems)
    return config


def _checked(config: Config) -> Config:
    """Return it when its scenario, if it has one, is good. Raises ConfigError."""
    if config.simulate is not None:
        from exporter.checks import check_scenario  # noqa: PLC0415 -- as above

        check_scenario(config)
    return config


def _tree(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given as a tree of the keys of a configuration file."""
    tree: dict[str, Any] = {}
    for key in OPTIONS:
        if options.get(key) is not None:
            section, _, name = key.rpartition(".")
            (tree.setdefault(section, {}) if section else tree)[name] = options[key]
    return tree
