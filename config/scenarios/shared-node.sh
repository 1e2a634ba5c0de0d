#!/bin/sh
# A node whose GPUs several people use, to see joules, watts and memory by workload. From the root of the tree:
#
#   sh config/scenarios/shared-node.sh .venv/bin/gpu-exporter
#
# It simulates the GPUs, and writes what a host would show of their users into a directory of its own, which it removes at
# the end: Slurm jobs 4711 (ada) and 4712 (bob) share sim0 and work 3:1, job 4713 holds sim1 and does nothing, the pod
# trainer-0 works on sim2 without an allocation that anybody tells, and sim3 is used by a service and by a stranger.
# Each load stops for 15 s in a minute, so that the idle power becomes known. Further options go at the end.
set -eu
[ $# -gt 0 ] || { echo "usage: sh $0 GPU_EXPORTER [OPTION...]" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
pod=3f2a9c1e-7b44-4d0c-9a55-0c6f1e2d3b4a
container=4e1f4e1f4e1f4e1f4e1f4e1f4e1f4e1f4e1f4e1f4e1f4e1f4e1f4e1f4e1f4e1f

process() { # PID NAME UID CGROUP
  mkdir -p "$dir/proc/$1"
  echo "$1 ($2) S 1 $1 $1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 5000 0 0" >"$dir/proc/$1/stat"
  printf 'Name:\t%s\nPPid:\t1\nUid:\t%s\t%s\t%s\t%s\n' "$2" "$3" "$3" "$3" "$3" >"$dir/proc/$1/status"
  echo "0::$4" >"$dir/proc/$1/cgroup"
}

process 1 systemd 0 /init.scope
mkdir "$dir/proc/2" # by its kernel threads, which have the flag 0x200000, the proc of a host is known
echo "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0" >"$dir/proc/2/stat"
process 4101 python3 1000 /system.slice/slurmstepd.scope/job_4711/step_0/user/task_0
process 4102 python3 1001 /system.slice/slurmstepd.scope/job_4712/step_0/user/task_0
process 4103 python3 1000 "/kubepods/burstable/pod$pod/$container"
process 4104 ollama 999 /system.slice/ollama.service
process 4105 python3 1001 /made/by/hand
mkdir "$dir/etc" "$dir/jobs"
printf 'root:x:0:0::/:/bin/sh\nada:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n' >"$dir/etc/passwd"
printf '4711\n4712\n' >"$dir/jobs/0"
echo 4713 >"$dir/jobs/1"
mkdir -p "$dir/pods/ml_trainer-0_$pod/main"

cat >"$dir/scenario.yaml" <<'END'
devices:
  - model: H100-SXM
    load: {pattern: square, level: 0.9, period_seconds: 60, duty: 0.75}
    processes:
      - {pid: 4101, started: 5000, name: python3, memory_used_bytes: 40.0e+9, share: 0.75}
      - {pid: 4102, started: 5000, name: python3, memory_used_bytes: 20.0e+9, share: 0.25}
  - model: H100-SXM
  - model: H100-SXM
    load: {pattern: square, level: 0.7, period_seconds: 60, duty: 0.75}
    processes:
      - {pid: 4103, started: 5000, name: python3, memory_used_bytes: 61.0e+9}
  - model: H100-SXM
    load: {pattern: square, level: 0.5, period_seconds: 60, duty: 0.75}
    processes:
      - {pid: 4104, started: 5000, name: ollama, memory_used_bytes: 12.0e+9, share: 0.8}
      - {pid: 4105, started: 5000, name: python3, memory_used_bytes: 3.0e+9, share: 0.2}
END
cat >"$dir/gpu-exporter.yaml" <<END
simulate: scenario.yaml
sampling: {processes_seconds: 1}
attribution:
  proc: $dir/proc
  kubelet_socket: null
  pod_logs: $dir/pods
  job_files: $dir/jobs
END

"$@" --config.file "$dir/gpu-exporter.yaml" &
trap 'kill "$!"' INT TERM
wait "$!" || wait "$!"
