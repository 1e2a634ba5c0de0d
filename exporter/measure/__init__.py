"""`gpu-exporter measure`: the joules of exactly one window of time, with a verdict on whether they can be trusted."""
