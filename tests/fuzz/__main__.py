"""`python -m fuzz values COUNT SEED`, `python -m fuzz programs COUNT SEED`: random input until something breaks.

`make fuzz` runs both for long. A fuzzer says what failed and how to do that alone again; its exit code is then 1.
"""

from __future__ import annotations

import importlib
import sys

FUZZERS = ("values", "programs")


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 3 or arguments[0] not in FUZZERS:
        print(f"python -m fuzz {'|'.join(FUZZERS)} [COUNT [SEED]]", file=sys.stderr)
        return 2
    count = int(arguments[1]) if len(arguments) > 1 else 1_000
    seed = int(arguments[2]) if len(arguments) > 2 else 0
    return int(importlib.import_module(f"fuzz.{arguments[0]}").main(count, seed) or 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
