"""The process of isolated steps, as it is inside: `python -m perdure.engine.attempts.isolation`.

It imports the step by module and name, gets jobs as JSON on its stdin and answers with JSON, so nothing is pickled and
nothing is inherited. It ends when its stdin does, at once if it is in the middle of a job: the worker is gone, and
another one begins the same attempt again. Where the system can, it is killed with the worker even if its code keeps the
interpreter to itself. `processes` is the side of the worker. Nothing imports this module: it is a program.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import sys
import threading
from queue import SimpleQueue
from types import FrameType
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw

from perdure.authoring.options import StepOptions
from perdure.authoring.step import Step, StepContext, step_context
from perdure.engine.attempts.isolated_jobs import CHILD_MAIN, Answer, Job, Surroundings, frame, read_frame
from perdure.engine.loading import loading
from perdure.errors import BadDefinition
from perdure.kernel.definitions import StepSpec
from perdure.kernel.values.faults import encode_error

_PR_SET_PDEATHSIG = 1


class _Process:
    def __init__(self, jobs: BinaryIO, answers: BinaryIO) -> None:
        self._jobs = jobs
        self._answers = answers
        self._received: SimpleQueue[tuple[bytes, bytes] | None] = SimpleQueue()
        self._is_busy = False
        #: What scripts of workers have at their top level, by file: each is run once.
        self._scripts: dict[str, dict[str, Any]] = {}

    def run(self) -> None:
        threading.Thread(target=self._listen, name="perdure-jobs", daemon=True).start()
        self._send(b"")
        threads = threading.active_count()
        while (received := self._received.get()) is not None:
            surroundings, job = received
            _move_to(msgspec.json.decode(surroundings, type=Surroundings | None))
            answer = self._answer(msgspec.json.decode(job, type=Job))
            if threading.active_count() > threads:
                answer = msgspec.structs.replace(answer, is_spent=True)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # a step may have replaced or closed it
                    stream.flush()
            self._is_busy = False
            self._send(msgspec.json.encode(answer))

    def _listen(self) -> None:
        while True:
            surroundings = read_frame(self._jobs)
            job = None if surroundings is None else read_frame(self._jobs)
            if surroundings is None or job is None:
                break
            self._is_busy = True
            self._received.put((surroundings, job))
        if self._is_busy:
            os._exit(1)
        self._received.put(None)

    def _send(self, data: bytes) -> None:
        self._answers.write(frame(data))
        self._answers.flush()

    def _answer(self, job: Job) -> Answer:
        try:
            sys.path[:] = job.path
            with loading(job.main_file or f"module {job.module}", f"for step {job.location!r}"):
                spec = self._find(job)
            args, kwargs = spec.arguments.decode(job.arguments)
        except BaseException as error:
            return Answer(error=encode_error(error), is_final=isinstance(error, BadDefinition))
        step_context.set(StepContext(job.run_id, job.location, spec.name, job.attempt, job.origin))
        self._send(b"")
        try:
            value = spec.function(*args, **kwargs)
            if spec.is_async:
                value = asyncio.run(value)
        except BaseException as error:
            return Answer(error=encode_error(error))
        try:
            return Answer(value=Raw(spec.result.encode(value, f"the result of step {job.location!r}")))
        except BaseException as error:
            return Answer(error=encode_error(error), is_final=True)

    def _find(self, job: Job) -> StepSpec:
        if job.main_file is not None:
            namespace = self._script(job.main_file)
        else:
            namespace = vars(importlib.import_module(job.module))
        first, _, rest = job.qualname.partition(".")
        target = namespace[first]
        for part in rest.split(".") if rest else ():
            target = getattr(target, part)
        return (target if isinstance(target, Step) else Step(target, None, StepOptions())).spec

    def _script(self, file: str) -> dict[str, Any]:
        import runpy  # only for scripts

        if file not in self._scripts:
            self._scripts[file] = runpy.run_path(file, run_name=CHILD_MAIN)
        return self._scripts[file]


def _move_to(surroundings: Surroundings | None) -> None:
    """Into the directory and the environment that the worker has now, if they are not the ones from before."""
    if surroundings is None:
        return
    if surroundings.directory is not None:
        with contextlib.suppress(OSError):
            os.chdir(surroundings.directory)
    environment = dict(surroundings.environment)
    for name in os.environb.keys() - environment.keys():
        del os.environb[name]
    os.environb.update(environment)


def _die_with_the_worker() -> None:
    """Be killed when the thread ends that started this process. One that has ended by now has closed the pipe, which
    `_Process._listen` sees."""
    if sys.platform == "linux":
        import ctypes  # only here

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _ignore(number: int, where: FrameType | None) -> None:
    """Ctrl-C and the end of a service reach every process of a group. This one ends with its worker, which may want to
    wait for the step: a function, because a signal that is ignored stays so in the programs that a step starts."""


def main() -> None:
    _die_with_the_worker()
    signal.signal(signal.SIGINT, _ignore)
    signal.signal(signal.SIGTERM, _ignore)
    # What the step prints must not mix with the answers: stdout becomes stderr, and stdin is empty.
    jobs, answers = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    _Process(jobs, answers).run()


if __name__ == "__main__":
    main()
