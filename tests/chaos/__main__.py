"""`make chaos`: 20 seeds of three minutes. `make chaos SEED=7`: one of them, with its plan. `SEEDS=3-5`, `SECONDS=60`,
`RUNS=500`. Prints what was seen; fails if anything was wrong in any seed."""

from __future__ import annotations

import asyncio
import sys
import time

from chaos.plan import draw
from chaos.world import live

_SEEDS, _SECONDS, _RUNS = 20, 180.0, 2_000


def main(arguments: list[str]) -> int:
    options = dict(argument.split("=", 1) for argument in arguments)
    seconds = float(options.get("seconds") or _SECONDS)
    runs = int(options.get("runs") or _RUNS)
    if options.get("seed"):
        seeds = range(int(options["seed"]), int(options["seed"]) + 1)
    else:
        first, _, last = (options.get("seeds") or f"1-{_SEEDS}").rpartition("-")
        seeds = range(int(first or 1), int(last) + 1)
    failed = [seed for seed in seeds if not _one(seed, seconds, runs)]
    print(f"{len(seeds)} seeds, {len(failed)} failed{f': {failed}' if failed else ''}")
    return 1 if failed else 0


def _one(seed: int, seconds: float, runs: int) -> bool:
    plan, began = draw(seed, seconds, runs), time.monotonic()
    print(plan, flush=True)
    verdict = asyncio.run(live(plan))
    for what, count in verdict.figures.items():
        print(f"    {what}: {count:,}")
    for each in verdict.wrong[:40]:
        print(f"    WRONG: {each}")
    told = f"{len(verdict.wrong)} things are wrong" if verdict.wrong else "everything is as it should be"
    print(f"seed {seed}: {told}, after {time.monotonic() - began:.0f} s", flush=True)
    return not verdict.wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
