"""Five runs of inference as they were measured on real GPUs: what the board has to find again.

Means of three runs each. Joules per token are means of the runs' ratios, and off from the ratio of the means by up to
0.05 %.
"""

from typing import NamedTuple


class Row(NamedTuple):
    model: str
    gpus: int
    concurrency: int
    joules_per_token: float
    watts_per_gpu: float
    joules_per_query: float
    tokens_per_second_per_gpu: float

    @property
    def pod(self) -> str:
        return f"{self.model.lower()}-tp{self.gpus}-c{self.concurrency}"

    @property
    def tokens_per_second(self) -> float:
        return self.tokens_per_second_per_gpu * self.gpus

    @property
    def queries_per_second(self) -> float:
        return self.tokens_per_second * self.joules_per_token / self.joules_per_query


ROWS = (
    Row("B200", 4, 4, 3.846, 495.5, 3539.0, 128.8),
    Row("B200", 4, 32, 1.680, 731.3, 1554.6, 435.4),
    Row("B200", 8, 4, 5.665, 425.4, 5212.8, 75.1),
    Row("MI355X", 4, 4, 4.882, 502.8, 4492.1, 103.0),
    Row("MI355X", 4, 32, 1.967, 764.1, 1820.6, 388.4),
)
INPUT_TOKENS = 0.1
"""For each output token."""
