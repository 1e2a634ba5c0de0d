"""What `--help` says beside the options: what each command is for, and all that an option does not show."""

COMMAND = """\
Prometheus exporter for NVIDIA and AMD GPUs whose joules can be trusted."""

COMMAND_MORE = """\
Without a command it serves: `gpu-exporter --provider simulated` is
`gpu-exporter serve --provider simulated`. Each command has a help of its own,
as in `gpu-exporter serve --help`.

examples:
  gpu-exporter
  gpu-exporter measure -- python3 benchmark.py
  gpu-exporter doctor
  gpu-exporter check-config /etc/gpu-exporter/gpu-exporter.yaml

exit status:
  0    done
  1    failed
  2    wrong options or configuration; each mistake is a line on standard error
  130  interrupted before there was anything to end in order
"""

SERVE = """\
Reads the GPUs of this host on a timer, each vendor's library in a process of
its own, and serves what it knows over HTTP. Without options it opens every
vendor whose GPUs it finds, and listens on 127.0.0.1:10042. A host without GPUs,
driver or library is served all the same, and they are looked for again.

It needs no root, but access to the device nodes: in most places membership of
the groups video and render."""

SERVE_MORE = """\
Everything that can be set is in the configuration file, of which these options
are the part that is often set; config/gpu-exporter.yaml in the source has each
with its default. Options win over the file.

paths:
  /metrics    the page: text 0.0.4 and 1.0.0, OpenMetrics 1.0.0, gzip;
              ?collect[]=energy shows these metrics alone, ?exclude[]=processes
              leaves them out
  /           GPUs and providers in one look, for people
  /device/GPU the same of one, such as nvidia0, and where its numbers are from
  /-/healthy  200 while the process works
  /-/ready    200 when readings are there, or no GPU is; else 503 and the reason

signals:
  SIGTERM, SIGINT  end within 5 seconds, also while a driver call hangs
  SIGHUP           read the configuration, the web configuration and its
                   certificates again; with any mistake what was stays
  SIGUSR1          release the devices, for a driver upgrade, a reset or a
                   change of partitions; the page is served meanwhile
  SIGUSR2          take them up again, as workers.release_seconds does

environment:
  RUNTIME_DIRECTORY, STATE_DIRECTORY
                   of a systemd unit: where totals are kept, if no option says
  NOTIFY_SOCKET, WATCHDOG_USEC, LISTEN_FDS
                   of a systemd unit: readiness, signs of life, sockets
  ROCM_PATH, ROCM_HOME
                   where AMD's library is looked for before /opt/rocm
  NODE_NAME        of a pod: the node that attribution.api_server asks about

examples:
  gpu-exporter --web.listen-address :10042
  gpu-exporter --provider nvidia --journal.directory /run/gpu-exporter
  gpu-exporter --config.file /etc/gpu-exporter/gpu-exporter.yaml
  gpu-exporter --provider simulated --log.format json

exit status:
  0  it was told to end
  1  it could not serve; the log says why
  2  wrong options or configuration; each mistake is a line on standard error
  3  a failure lasted longer than workers.exit_after_seconds
"""

MEASURE = """\
Runs a command and tells the joules of the GPUs meanwhile, and whether they can
be trusted. Its input, output and signals are its own; results are files in a
directory: energy.json, identity.json, samples.csv."""

MEASURE_MORE = """\
environment of the command:
  GPU_EXPORTER_MARKS  file to which it may append lines: `start NAME` and
                      `end NAME` mark windows, `tokens N` and `queries N` count

examples:
  gpu-exporter measure -- python3 benchmark.py
  gpu-exporter measure --gpus nvidia0,nvidia1 --repeat 3 -- ./train.sh
  gpu-exporter measure --tokens-from 'Total tokens: ([0-9]+)' -- ./serve-bench
  gpu-exporter measure --from-log power.csv

exit status:
  that of the command, or 128 + the number of the signal that ended it
  2    wrong options or configuration
  125  nothing was measured
  126  the command cannot be run
  127  the command is not there
"""

DOCTOR = """\
Opens the providers, reads every GPU for a few seconds, and says what was found:
each reading with its value and where it comes from, what is missing and why,
the rights and places of this process, and what to do about each problem."""

DOCTOR_MORE = """\
It reads beside a running daemon and changes nothing. With --json it also writes
down what the vendors' libraries and the kernel answered, twice with a second
between; serial numbers, UUIDs and names of processes and users are replaced.

examples:
  gpu-exporter doctor
  gpu-exporter doctor --provider amd --json > report.json

exit status:
  0  all is well
  1  something is missing or does not agree
  2  no GPU can be measured, or wrong options or configuration
"""

CHECK_CONFIG = """\
Checks a configuration and the files that it names; a scenario or a web
configuration as well, by what is in it. Nothing is started."""

CHECK_CONFIG_MORE = """\
exit status:
  0  valid; a line says what the file was taken for
  2  not valid; each mistake is a line on standard error, with its key path
"""

METRICS = """\
Prints the reference of all metrics as Markdown: name, type, unit, labels and
meaning of each."""
