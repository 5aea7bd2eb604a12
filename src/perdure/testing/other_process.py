"""Replaying journals in another process: what depends on the process itself shows there, such as the order of sets.

Both sides are here: `differences_in_other_processes`, and for the child `python -m perdure.testing.other_process`,
which imports the module of the workflow by its file, replays each journal and answers with the divergences it found.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.authoring.registry import registry
from perdure.engine.loading import loading
from perdure.errors import BadDefinition
from perdure.kernel.definitions import WorkflowSpec
from perdure.store.memory import MemoryStore
from perdure.testing.histories import History, histories_of, replay_problem

_PATIENCE_SECONDS = 60.0
#: The exit status of a process whose module starts something at its top level.
_REFUSED = 3


class Job(msgspec.Struct):
    module: str
    file: str
    path: list[str]
    histories: list[History]


def differences_in_other_processes(spec: WorkflowSpec, memory: MemoryStore, hash_seeds: Sequence[int]) -> list[str]:
    """Replay every journal in one process for each hash seed. A module that cannot be imported there is left out."""
    histories = histories_of(memory)
    module = sys.modules.get(spec.function.__module__)
    file = getattr(module, "__file__", None)
    if not hash_seeds or file is None or not histories:
        return []
    job = msgspec.json.encode(Job(spec.function.__module__, file, [p or os.getcwd() for p in sys.path], histories))
    children = [(seed, _child(seed)) for seed in hash_seeds]
    found: list[str] = []
    refusal = ""
    for seed, child in children:
        try:
            output, _ = child.communicate(job, timeout=_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            continue
        if child.returncode == _REFUSED:
            refusal = output.rpartition(b"\n")[2].decode()
        elif child.returncode == 0:
            answer: dict[str, str] = msgspec.json.decode(output.rpartition(b"\n")[2])
            found += [f"with PYTHONHASHSEED={seed}, in another process: {text}" for text in answer.values()]
    if refusal:  # the module's own code at its top level: this one would run there, and start processes without end
        raise BadDefinition(refusal)
    return found


def _child(seed: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # this interpreter, this file
        [sys.executable, "-m", "perdure.testing.other_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )


def _import(module: str, file: str) -> Any:
    """By name where that finds the same file; by file for scripts and for modules that a test runner named."""
    try:
        found = None if module == "__main__" else importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is not None and found.origin and Path(found.origin).resolve() == Path(file).resolve():
        return importlib.import_module(module)
    name = "__perdure_other_process__" if module == "__main__" else module
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(file)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    sys.path[:] = job.path
    try:
        with loading(job.file, "to replay journals"):
            _import(job.module, job.file)
    except BadDefinition as error:
        sys.stdout.buffer.write(b"\n" + error.message.encode())
        sys.stdout.flush()
        sys.exit(_REFUSED)
    known = [one for one in job.histories if registry.workflow(one.workflow, one.version) is not None]
    problems = {one.id: problem for one in known if (problem := replay_problem(one)) is not None}
    sys.stdout.buffer.write(b"\n" + msgspec.json.encode(problems))


if __name__ == "__main__":
    main()
