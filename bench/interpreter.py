"""The Python that everything is measured with: the quickest of this machine.

How fast CPython is depends on how it was built. One that is compiled without profiling it first (what many tools do
that build it from source, unless they are told otherwise) takes a fifth longer for the same bytecodes. What people
run is the other kind: those of the distributions, of the official images and of python.org. So all interpreters of this
version are tried, and `python -m bench` goes on with the best of them, for perdure and for its peers alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from bench.install import NotInstalled, environment
from bench.systems import ROOT, VENVS

#: A tenth: below that the difference is as likely one of the moment.
WORTH_CHANGING = 1.1
TRIES = 5
_SECONDS_MAX = 30

#: What engines do all day: calls, attributes, small objects, dictionaries, coroutines. Prints how long it took.
_TRIAL = """
import time
class Thing:
    __slots__ = ("name", "value")
    def __init__(self, name, value):
        self.name = name
        self.value = value
async def add(things, number):
    thing = Thing(f"{number % 97}", number)
    things[thing.name] = things.get(thing.name, 0) + thing.value
    return thing
def run(count):
    things = {}
    for number in range(count):
        try:
            add(things, number).send(None)
        except StopIteration as stop:
            stop.value.value += 1
run(1000)
began = time.perf_counter()
run(50000)
print(time.perf_counter() - began)
"""
_CAN_MAKE_ENVIRONMENTS = "import ensurepip, venv"


def candidates(path: str, own: Path) -> list[Path]:
    """Interpreters of this version in the directories of a search path, `own` first, each once."""
    name = f"python3.{sys.version_info.minor}"
    found = [own, *(Path(directory) / name for directory in path.split(os.pathsep) if directory)]
    found += [Path("/usr/bin") / name, Path("/usr/local/bin") / name]
    unique: dict[Path, Path] = {}
    for each in found:
        if each.exists():
            unique.setdefault(each.resolve(), each)
    return list(unique.values())


def quickest(pythons: Sequence[Path], seconds: Callable[[Path], float]) -> Path:
    """The best of them in a few tries each, taken in turns; the first unless another is clearly better."""
    own, *others = pythons
    best = dict.fromkeys(pythons, float("inf"))
    for _ in range(TRIES):
        for python in pythons:
            best[python] = min(best[python], seconds(python))
    other = min(others, key=lambda each: best[each], default=own)
    return other if best[own] > WORTH_CHANGING * best[other] else own


def trial_seconds(python: Path) -> float:
    """How long the trial took; for ever, if this interpreter is of no use here."""
    try:
        for code in (_CAN_MAKE_ENVIRONMENTS, _TRIAL):
            done = subprocess.run(
                [str(python), "-I", "-c", code], capture_output=True, text=True, timeout=_SECONDS_MAX, check=True
            )
        return float(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return float("inf")


def go_on_with_the_quickest(arguments: Sequence[str], say: Callable[[str], None]) -> None:
    """Start again as the best interpreter of this machine, unless that is the one at work. Returns if it is."""
    own = Path(getattr(sys, "_base_executable", sys.executable))
    best = quickest(candidates(os.environ.get("PATH", ""), own), trial_seconds)
    if best == own:
        return
    try:
        python = environment("perdure", ("--editable", f"{ROOT}[postgres]"), best)
    except NotInstalled as reason:
        say(f"a quicker Python is here, but perdure cannot be installed for it: {reason}")
        return
    say("this machine has a quicker Python than the one of `make setup`, which is used for everything")
    _become(python, ["-m", "bench", "--this-python", *arguments])


def _become(python: Path, arguments: Sequence[str]) -> NoReturn:
    sys.stdout.flush()
    os.chdir(ROOT)
    os.execv(python, [str(python), *arguments])


def is_of_bench() -> bool:
    """Whether the interpreter at work is the one that `go_on_with_the_quickest` chose."""
    return Path(sys.prefix).is_relative_to(VENVS)
