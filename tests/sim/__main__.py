"""`make sim SEEDS=1000`, `make sim SEEDS=5000-6000`, `make sim SEED=58`, `make sim SEED=58 PLAN="after:11:0:0"`.

Many seeds are lived through in every kind of world; `MORE=none` are the usual ones alone, `MORE=hosts,odd` those with
these faults besides, `MORE=all` with all of them, and `STORE=sqlite` chooses the store that users have. One seed is of
the usual kind, if nothing else is said.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from sim.plan import MORE_FAULTS, USUAL, Setting, parse, setting_of
from sim.seeds import explain, run_seeds
from sim.world import simulate

#: Every kind of world: the usual ones, each kind of fault by itself, and all of them together on SQLite.
KINDS = (USUAL, *(Setting(frozenset({kind})) for kind in MORE_FAULTS), Setting(frozenset(MORE_FAULTS), "sqlite"))


def main(arguments: list[str]) -> int:
    options = dict(argument.split("=", 1) for argument in arguments)
    more, store = options.get("more", ""), options.get("store", "")
    setting = setting_of(more, store)
    if options.get("seed"):
        return _one(int(options["seed"]), options.get("plan", ""), setting)
    first, _, last = (options.get("seeds") or "1000").rpartition("-")
    settings = [setting] if more or store else KINDS
    return max(_many(int(first or 0), int(last), each) for each in settings)


def _one(seed: int, plan: str, setting: Setting) -> int:
    report = simulate(seed, parse("" if plan == "none" else plan) if plan else None, setting)
    if report.problem:
        print(explain(report))
        return 1
    print("\n".join(report.tail))
    print(f"seed {seed}: {report.runs} runs, {report.records} records, no violation")
    return 0


def _many(first: int, last: int, setting: Setting) -> int:
    begun = said = time.monotonic()
    failed, seeds, records = 0, 0, 0
    happened: Counter[str] = Counter()
    print(f"worlds of the kind{str(setting) or ' that is usual'}:")
    for report in run_seeds(range(first, last), setting=setting):
        seeds, records = seeds + 1, records + report.records
        happened += report.happened
        if report.problem:
            failed += 1
            print(explain(report) if failed <= 3 else f"seed {report.seed}: {report.problem}", flush=True)
        if time.monotonic() - said > 10:
            said = time.monotonic()
            print(f"{seeds} seeds, {failed} failed, {_rate(seeds, begun)} a minute", flush=True)
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(happened.items()))
    print(f"{seeds} seeds ({first} to {last - 1}), {records} records, {failed} failed, {_rate(seeds, begun)} a minute")
    print(f"what happened: {kinds}")
    return 1 if failed else 0


def _rate(seeds: int, begun: float) -> int:
    return round(seeds * 60 / max(0.001, time.monotonic() - begun))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
