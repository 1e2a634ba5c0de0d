"""What only a real GPU can show, in one command and within six minutes:

    python -m pytest -m gpu tests/hardware

The contract on the vendor's own library, units by physics, own process and memory seen, the cost of each call, how
often the accumulator moves, over what the power reading averages. Results go into one JSON file (HARDWARE_RESULT,
default hardware.json), with a redacted capture in it: see docs/hardware.md for what to do with it.
"""
