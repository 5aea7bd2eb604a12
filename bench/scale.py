"""Waiting runs on one SQLite file: memory, wake-ups, restart. `python -m bench.scale [COUNT ...]`

For each count: that many runs wait for an event, then a new process makes steps and wakes a thousand of them. Neither
may be slowed by the runs that go on waiting. The workload `crowd` compares a small and a large count in turns; this
shows each count by itself.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.driver import ALONE_SECONDS_MAX, run_job
from bench.systems import PERDURE
from bench.wire import Job

COUNTS = {"steps": 1_000, "woken": 1_000, "rounds": 1}


def main() -> None:
    counts = [int(text) for text in sys.argv[1:]] or [2_000, 200_000]
    rates: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        for count in counts:
            place = str(Path(directory) / str(count))
            facts: dict[str, float] = {}
            for part in ("fill", "probe"):
                options = {"part": part, "turn": 0}
                job = Job("crowd", place, COUNTS | {"runs": count}, variant="full", options=options)
                answer = run_job(PERDURE, job, "", killed=False, seconds=ALONE_SECONDS_MAX)
                if "raw" not in answer:
                    sys.exit(f"{count:,} waiting, {part}: {answer}")
                facts |= {f"{part} {name.replace('_', ' ')}": value for name, value in answer["raw"].items()}
            rates.append(facts["probe woken per second"])
            print(
                f"{count:>9,} waiting:", ", ".join(f"{name} {value:,.2f}" for name, value in facts.items()), flush=True
            )
    print(f"rate of wake-ups, the last to the first: {rates[-1] / rates[0]:.2f}")


if __name__ == "__main__":
    main()
