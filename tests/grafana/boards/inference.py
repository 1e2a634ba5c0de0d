"""How many joules does a token or a query take?"""

# ruff: noqa: E501 -- descriptions and queries stay whole

from typing import Any

from tests.grafana.boards.board import board, choice, every_gpu, variable
from tests.grafana.boards.panels import Column, graph, query, row, stat, table

TOKENS = choice(
    "tokens",
    "Output tokens",
    (
        ("vLLM", "vllm:generation_tokens_total"),
        ("SGLang", "sglang:generation_tokens_total"),
        ("TGI", "tgi_request_generated_tokens_sum"),
        ("llama.cpp", "llamacpp:tokens_predicted_total"),
    ),
    "Which server's counter of output tokens.",
)
PROMPTS = choice(
    "prompts",
    "Input tokens",
    (
        ("vLLM", "vllm:prompt_tokens_total"),
        ("SGLang", "sglang:prompt_tokens_total"),
        ("TGI", "tgi_request_input_length_sum"),
        ("llama.cpp", "llamacpp:prompt_tokens_total"),
    ),
    "Which server's counter of input tokens.",
)
QUERIES = choice(
    "queries",
    "Queries",
    (
        ("vLLM", "vllm:request_success_total"),
        ("SGLang", "sglang:num_requests_total"),
        ("TGI", "tgi_request_generated_tokens_count"),
    ),
    "Which server's counter of queries; llama.cpp has none.",
)
SERVED = 'job=~"$server_job", instance=~"$server"'
ENERGY = "sum(increase(gpu_energy_joules_total{#}[$__range]))"
POWER = "sum(rate(gpu_energy_joules_total{#}[$__rate_interval]))"
POD = "k8s_namespace, k8s_pod"
WATTS_OF_POD = f"""sum by ({POD}) (
  sum by (job, instance, uuid, workload) (WINDOW)
  * on (job, instance, uuid, workload) group_left ({POD})
  group by (job, instance, uuid, workload, {POD}) (
    topk by (job, instance, uuid, workload) (1, NAMES)
  )
)"""
NAMES = 'gpu_workload_info{#, k8s_pod!=""}'


def _served(metric: str, window: str = "$__range") -> str:
    return f"sum(increase(${metric}{{{SERVED}}}[{window}]))"


def _rate(metric: str) -> str:
    return f"sum(rate(${metric}{{{SERVED}}}[$__rate_interval]))"


def _of_pod(counted: str) -> str:
    """Sum by pod, whose names the target has as labels, as the Prometheus operator gives them."""
    named = f'label_replace(label_replace({counted}, "k8s_namespace", "$1", "namespace", "(.+)"), "k8s_pod", "$1", "pod", "(.+)")'
    return f"sum by ({POD}) ({named})"


def _of_host(summed: str) -> str:
    """Sum by host: the instance without its port."""
    return f'sum by (host) (label_replace({summed}, "host", "$1", "instance", "(.+?)(?::[0-9]+)?"))'


def _chosen() -> list[dict[str, Any]]:
    return [
        row("Chosen GPUs, chosen servers"),
        stat(
            "Joules per output token",
            "Energy of the chosen GPUs in the selected range, by the output tokens of the chosen servers. Choose the GPUs that serve them.",
            "joule",
            query(f"{ENERGY} / {_served('tokens')}"),
            decimals=3,
        ),
        stat(
            "Joules per query",
            "Energy of the chosen GPUs in the selected range, by the queries of the chosen servers.",
            "joule",
            query(f"{ENERGY} / {_served('queries')}"),
            decimals=2,
        ),
        stat(
            "Joules per token of both kinds",
            "Energy of the chosen GPUs by input and output tokens together.",
            "joule",
            query(f"{ENERGY} / ({_served('tokens')} + {_served('prompts')})"),
            decimals=3,
        ),
        stat(
            "Power of a GPU",
            "Mean power of one of the chosen GPUs over the selected range.",
            "watt",
            query("avg(increase(gpu_energy_joules_total{#}[$__range])) / $__range_s"),
            decimals=1,
        ),
        stat(
            "Output tokens of a GPU",
            "Output tokens per second and chosen GPU over the selected range.",
            "cps",
            query(f"{_served('tokens')} / $__range_s / count(gpu_info{{#}})"),
            decimals=1,
        ),
        stat(
            "Output tokens of a query",
            "Mean output tokens of a query in the selected range.",
            "none",
            query(f"{_served('tokens')} / {_served('queries')}"),
            decimals=0,
        ),
        graph(
            "Joules per output token over time",
            "The same over time. High where servers wait with their GPUs drawing power.",
            "joule",
            query(f"{POWER} / ({_rate('tokens')} > 0)", "J per output token"),
        ),
        graph(
            "Joules per query over time",
            "The same over time, for the queries that ended in each interval.",
            "joule",
            query(f"{POWER} / ({_rate('queries')} > 0)", "J per query"),
        ),
        graph(
            "Power",
            "What the chosen GPUs draw.",
            "watt",
            query("rate(gpu_energy_joules_total{#}[$__rate_interval])", "{{instance}} {{gpu}}"),
            stacked=True,
        ),
        graph(
            "Tokens",
            "Tokens per second of the chosen servers.",
            "cps",
            query(_rate("tokens"), "output"),
            query(_rate("prompts"), "input"),
        ),
    ]


def _by_pod() -> list[dict[str, Any]]:
    joules = WATTS_OF_POD.replace("WINDOW", "increase(gpu_workload_energy_joules_total{#}[$__range])")
    # A pod that has ended has its tokens in the range as well.
    joules = joules.replace("NAMES", f"last_over_time({NAMES}[$__range])")
    watts = WATTS_OF_POD.replace("WINDOW", "rate(gpu_workload_energy_joules_total{#}[$__rate_interval])")
    watts = watts.replace("NAMES", NAMES)
    tokens = _of_pod(f"increase($tokens{{{SERVED}}}[$__range])")
    queries = _of_pod(f"increase($queries{{{SERVED}}}[$__range])")
    return [
        row("By pod"),
        table(
            "Pods that serve",
            """Energy of each pod and what it served in the selected range. The server's target needs the labels namespace and
            pod, which the Prometheus operator gives; the exporter tells whose the GPUs are. An estimate where pods share a GPU.""",
            (
                Column("Joules per output token", "joule", f"{joules} / on ({POD}) ({tokens} > 0)"),
                Column("Joules per query", "joule", f"{joules} / on ({POD}) ({queries} > 0)"),
                Column("Energy", "joule", joules),
                Column("Output tokens", "none", tokens),
            ),
        ),
        graph(
            "Joules per output token by pod",
            "The same over time.",
            "joule",
            query(
                f"{watts} / on ({POD}) ({_of_pod(f'rate($tokens{{{SERVED}}}[$__rate_interval])')} > 0)",
                "{{k8s_namespace}}/{{k8s_pod}}",
            ),
            width=24,
        ),
    ]


def _by_host() -> list[dict[str, Any]]:
    return [
        row("By host"),
        table(
            "Hosts that serve",
            """Energy of the chosen GPUs of each host and what its servers served in the selected range, for exporters and
            servers that Prometheus scrapes under the same host name.""",
            (
                Column(
                    "Joules per output token",
                    "joule",
                    f"{_of_host('increase(gpu_energy_joules_total{#}[$__range])')} / on (host) ({_of_host(f'increase($tokens{{{SERVED}}}[$__range])')} > 0)",
                ),
                Column(
                    "Joules per query",
                    "joule",
                    f"{_of_host('increase(gpu_energy_joules_total{#}[$__range])')} / on (host) ({_of_host(f'increase($queries{{{SERVED}}}[$__range])')} > 0)",
                ),
            ),
            width=12,
        ),
        graph(
            "Joules per output token by host",
            "The same over time.",
            "joule",
            query(
                f"{_of_host('rate(gpu_energy_joules_total{#}[$__rate_interval])')} / on (host) ({_of_host(f'rate($tokens{{{SERVED}}}[$__rate_interval])')} > 0)",
                "{{host}}",
            ),
        ),
    ]


def dashboard() -> dict[str, Any]:
    return board(
        "inference",
        "GPU inference",
        "Joules per output token and per query, for vLLM, SGLang, TGI and llama.cpp.",
        [*_chosen(), *_by_pod(), *_by_host()],
        (
            every_gpu(),
            TOKENS,
            PROMPTS,
            QUERIES,
            variable(
                "server_job",
                "Job of servers",
                "label_values($tokens, job)",
                description="Jobs of Prometheus that scrape the inference servers.",
            ),
            variable(
                "server",
                "Server",
                'label_values($tokens{job=~"$server_job"}, instance)',
                description="Inference servers.",
            ),
        ),
    )
