"""Runs the workloads: one process for each system, workload and round, each bounded in time.

The speed of a machine changes within minutes, so that two figures can be compared only if they were taken one after the
other: a round does one workload on every system before the next, and the bare commits are measured before and after
each of them. A system that is missing, does not do a workload, fails or takes too long is part of the outcome.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bench import machine, servers
from bench.adapters.limits import Bare, bare_commits, bare_postgresql_commits
from bench.figures import Outcome, Sample
from bench.install import NotInstalled, installed
from bench.systems import PERDURE, POSTGRESQL, ROOT, Server, System
from bench.wire import Job
from bench.workloads import Workload

Size = Literal["full", "quick", "tiny"]

#: One process. Long enough for the slowest workload on a busy machine, short enough for a system that hangs.
SECONDS_MAX = {"full": 240.0, "quick": 60.0, "tiny": 60.0}
#: Perdure's own, which fill a store with 200,000 runs.
ALONE_SECONDS_MAX = 900.0
BARE_COMMITS = {"full": 500, "quick": 300, "tiny": 5}
LIMIT_COUNTS = {
    "full": {"commits": 1_000, "batches": 100, "tasks": 100_000},
    "quick": {"commits": 500, "batches": 50, "tasks": 50_000},
    "tiny": {"commits": 5, "batches": 1, "tasks": 500},
}


class Driver:
    """`say` is told each figure as it is found, `keep` everything found so far after each round."""

    def __init__(
        self,
        directory: Path,
        size: Size,
        say: Callable[[str], None] = lambda _line: None,
        keep: Callable[[Outcome], None] = lambda _outcome: None,
    ) -> None:
        self._directory = directory
        self._size: Size = size
        self._say = say
        self._keep = keep
        self._jobs = 0
        self._samples: list[Sample] = []
        self._limits: dict[str, list[float]] = {}
        #: By where the commits went.
        self._bare: dict[Server, list[float]] = {"": [], "postgresql": []}
        #: Measured after one workload, and so before the next if that commits to the same place.
        self._neighbour: tuple[Server, Bare] | None = None
        self._versions: dict[str, str] = {}
        self._missing: dict[str, str] = {}
        self._postgresql: servers.Postgresql | None = None
        #: A database for bare commits.
        self._bare_url = ""

    def run(self, systems: Sequence[System], workloads: Sequence[Workload], rounds: int) -> Outcome:
        facts = machine.facts(self._directory)
        with contextlib.ExitStack() as stack:
            present = [system for system in systems if self._present(system)]
            if any(system.server == "postgresql" for system in present):
                self._start_postgresql(stack)
                facts["PostgreSQL"] = self._versions.get("postgresql", "missing")
            for number in range(rounds):
                self._measure_limits()
                for workload in workloads:
                    # The outermost loop but one: what is compared with each other is measured within a minute.
                    for system in present:
                        if _is_asked(system, workload, number):
                            self._measure(system, workload, number)
                self._keep(self._outcome(facts))
        return self._outcome(facts)

    def _outcome(self, facts: Mapping[str, str]) -> Outcome:
        bare, on_postgresql = self._bare[""], self._bare["postgresql"]
        return Outcome(self._samples, self._limits, bare, facts, self._versions, self._missing, on_postgresql)

    # -- before ------------------------------------------------------------------------------------------------------

    def _present(self, system: System) -> bool:
        try:
            self._versions[system.name] = installed(system)
        except NotInstalled as reason:
            self._missing[system.name] = f"not installed: {reason}"
            self._say(f"{system.title}: not installed: {reason}")
            return False
        return True

    def _start_postgresql(self, stack: contextlib.ExitStack) -> None:
        try:
            installed(POSTGRESQL)
            self._postgresql = stack.enter_context(servers.postgresql(self._new_directory()))
            self._versions["postgresql"] = self._postgresql.version
            if importlib.util.find_spec("psycopg"):
                self._bare_url = self._postgresql.database()
        except (NotInstalled, RuntimeError) as reason:
            self._missing["postgresql"] = str(reason)
            self._say(f"PostgreSQL: {reason}")

    # -- measuring -----------------------------------------------------------------------------------------------------

    def _measure(self, system: System, workload: Workload, number: int) -> None:
        counts = workload.counts_for(system.name, self._size)
        place: Server = "postgresql" if system.server == "postgresql" and self._bare_url else ""
        before = self._neighbour[1] if self._neighbour and self._neighbour[0] == place else self._bare_commits(place)
        answer = self._answer(system, workload, counts)
        after = self._bare_commits(place)
        self._neighbour = place, after
        rate, milliseconds = (before.rate + after.rate) / 2, (before.milliseconds + after.milliseconds) / 2
        sample = Sample(system.name, workload.name, number, counts, bare=rate, bare_ms=milliseconds, **answer)
        self._samples.append(sample)
        self._say(f"round {number + 1}  {workload.name:9} {system.title:28} {_in_a_line(sample)}")

    def _answer(self, system: System, workload: Workload, counts: Any) -> dict[str, Any]:
        job = Job(workload.name, str(self._new_directory()), counts, variant=system.variant)
        limit = ALONE_SECONDS_MAX if workload.alone and self._size == "full" else SECONDS_MAX[self._size]
        try:
            with contextlib.ExitStack() as stack:
                if system.server == "restate":
                    url = stack.enter_context(servers.restate(self._new_directory())).url
                elif system.server == "postgresql":
                    if self._postgresql is None:
                        return {"failed": f"no PostgreSQL: {self._missing.get('postgresql', '')}"}
                    url = self._postgresql.database()
                else:
                    url = ""
                return run_job(system, job, url, workload.killed, limit)
        except (RuntimeError, NotInstalled) as error:
            return {"failed": str(error)}

    def _measure_limits(self) -> None:
        self._neighbour = None
        counts = LIMIT_COUNTS[self._size]
        places = [(PERDURE, "sqlite", ""), (PERDURE, "tasks", "")]
        if self._postgresql is not None:
            places.append((POSTGRESQL, "postgresql", self._postgresql.database()))
        for system, name, url in places:
            job = Job(name, str(self._new_directory()), counts)
            answer = run_job(system, job, url, killed=False, seconds=SECONDS_MAX[self._size], adapter="limits")
            if "raw" not in answer:  # no reason to lose everything else
                self._say(f"the limits of {name} could not be measured: {answer}")
                continue
            for limit, value in answer["raw"].items():
                self._limits.setdefault(limit, []).append(value)

    def _bare_commits(self, place: Server) -> Bare:
        count = BARE_COMMITS[self._size]
        if place == "postgresql":
            bare = bare_postgresql_commits(self._bare_url, count)
        else:
            bare = bare_commits(str(self._new_directory() / "bare.db"), count)
        self._bare[place].append(bare.rate)
        return bare

    def _new_directory(self) -> Path:
        self._jobs += 1
        directory = self._directory / str(self._jobs)
        directory.mkdir()
        return directory


def _is_asked(system: System, workload: Workload, number: int) -> bool:
    """What perdure does alone is measured once, on the stores that people use: some of it takes minutes."""
    return not workload.alone or (system.name in workload.systems and number == 0)


def _in_a_line(sample: Sample) -> str:
    from bench.figures import figures_of
    from bench.workloads import ALL

    if sample.raw is None:
        return f"does not do this: {sample.refused}" if sample.refused else f"FAILED: {sample.failed}"
    workload = ALL[sample.workload]
    return f"{figures_of(sample.workload, sample.raw)[workload.figure]:,.1f} {workload.unit}"


# -- one job -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """The checkout whose adapters are run, and the folder with the perdure that they use; None: the installed one."""

    adapters: Path = ROOT
    source: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | ({"PYTHONPATH": str(self.source)} if self.source else {})


HERE = Place()


def run_job(
    system: System,
    job: Job,
    url: str,
    killed: bool,
    seconds: float,
    adapter: str = "",
    place: Place = HERE,
) -> dict[str, Any]:
    """Run an adapter to its answer: `{"raw": ...}`, `{"refused": why}` or `{"failed": what was seen}`."""
    Path(job.directory).mkdir(parents=True, exist_ok=True)
    module = f"bench.adapters.{adapter or system.adapter}"
    for life in (1, 2) if killed else (1,):
        wanted = asdict(job) | {"url": url, "life": life}
        name = wanted.pop("workload")
        command = [str(system.python), "-m", module, name, json.dumps(wanted)]
        answer = _converse(command, seconds, place)
        if life == 1 and killed and answer == {"ready": True}:
            continue
        if "figures" in answer:
            if life == 1 and killed:
                return {"failed": "it ended before it could be killed"}
            return {"raw": answer["figures"]}
        return answer if answer.keys() & {"refused", "failed"} else {"failed": f"it answered {answer}"}
    raise AssertionError("the second life always returns")


def _converse(command: list[str], seconds: float, place: Place = HERE) -> dict[str, Any]:
    """Start a process, wait for its one answer, and kill it with all its children: it has nothing more to say."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            cwd=place.adapters,
            env=place.environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        overdue = threading.Event()

        def end() -> None:
            overdue.set()
            _kill(process)

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            line = process.stdout.readline()
        finally:
            timer.cancel()
            _kill(process)
            process.stdout.close()
            process.wait()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if overdue.is_set():
            return {"failed": f"no answer in {seconds:.0f} s"}
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        return {"failed": lines[-1].strip()[:200] if lines else "it ended without a word"}


def _kill(process: subprocess.Popen[str]) -> None:
    # Its own session: the group holds it and what it started, nothing else.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
