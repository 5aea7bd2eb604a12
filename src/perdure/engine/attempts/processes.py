"""The processes of isolated steps: at most so many at once, each with a thread that talks to it.

A process is used for one attempt after another, because starting Python and importing the step's module takes longer
than most steps. It is ended if it is left without work for a while, if a step leaves threads behind in it, and with
SIGKILL if its attempt is cancelled or times out. The other side is `isolation`.

A thread for each, and not the subprocesses of asyncio: those need the event loop to end a process in order, and on
Linux a process dies with the thread that started it (docs/decisions/0113).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from perdure import limits
from perdure.authoring.step import StepContext
from perdure.engine.attempts.isolated_jobs import Answer, Job, Surroundings, frame, of_main, read_frame
from perdure.engine.attempts.threads import Call, Carried, DaemonThreads
from perdure.kernel.definitions import StepSpec
from perdure.kernel.values.faults import decode_error


class ProcessDied(RuntimeError):
    """The process of an isolated step ended without an answer."""


class StepProcesses(DaemonThreads):
    """Runs isolated attempts in at most `size` processes, not counting those that are being killed."""

    def __init__(self, size: int | None) -> None:
        super().__init__(size or _cores(), limits.STEP_PROCESS_IDLE_SECONDS)
        self._own = threading.local()

    def ask(self, spec: StepSpec, data: bytes, context: StepContext, begun: Callable[[], None] | None) -> Call:
        """Have one attempt carried out. The call's result is for `value_of`; `begun` comes when its code begins."""
        job = msgspec.json.encode(_job(spec, data, context))
        call = Call(lambda: self._converse(call, job, context.location), begun, self._lock)
        call.over = call.loop.create_future()
        return self._put(call)

    def _carry_out(self, call: Call) -> Any:
        return call.function()

    def _converse(self, call: Call, job: bytes, location: str) -> bytes | None:
        """In a thread: hand the job to this thread's process and wait for the answer."""
        while True:
            child = self._child()
            with self._lock:
                call.has_begun = not call.is_withdrawn
                if not call.has_begun or call.is_stuck:
                    return None
                call.stop = child.kill  # from here on a call that is given up takes its process with it
            try:
                answer = child.ask(job, call.tell_begun)
            finally:
                with self._lock:
                    call.stop = None
            if answer is not None:
                return answer
            self._own.child = None
            how = child.end()
            # One that was there before may have been dying when it got the job. If the code has not begun, no harm is
            # done (tests/steps/test_step_processes.py::test_process_that_dies_with_a_job_it_has_not_begun).
            if child.has_begun or child.is_new or call.is_stuck:
                raise ProcessDied(f"the process of step {location!r} {how} and no answer.")

    def _child(self) -> _Child:
        """The process of this thread: the one that it has, if that is in order, or a new one."""
        child: _Child | None = getattr(self._own, "child", None)
        if child is None or not child.is_ready():
            if child is not None:
                child.end()
            child = self._own.child = _Child()
        return child

    def _end(self) -> None:
        child: _Child | None = getattr(self._own, "child", None)
        if child is not None:
            child.end()


def _cores() -> int:
    """How many processes can run at once: on those cores that this one may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def value_of(spec: StepSpec, output: bytes, location: str) -> Any:
    """What an attempt returned. Raises what it raised, as `Carried`."""
    answer = msgspec.json.decode(output, type=Answer)
    if answer.error is not None:
        fault = of_main(answer.error) if spec.function.__module__ == "__main__" else answer.error
        raise Carried(decode_error(fault), answer.is_final)
    try:
        return spec.result.decode(answer.value, f"the result of step {location!r}")
    except Exception as error:
        raise Carried(error, is_final=True) from error


class _Child:
    """One process, as its thread sees it."""

    def __init__(self) -> None:
        self._surroundings: Surroundings | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perdure.engine.attempts.isolation"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        )  # fmt: skip
        self._is_spent = False
        #: Whether the code of its last job has begun, and whether that was its first.
        self.has_begun = False
        self.is_new = True
        if self._receive(limits.STEP_PROCESS_START_SECONDS) is None:  # it says that it is there
            self.kill()
            raise ProcessDied(f"the process of an isolated step {self.end()} before it could begin.")

    def is_ready(self) -> bool:
        return not self._is_spent and self._process.poll() is None

    def ask(self, job: bytes, begun: Callable[[], None]) -> bytes | None:
        """The answer; None if the process has died."""
        self.is_new = self._surroundings is None
        self.has_begun = False
        surroundings = _surroundings()
        changed = None if surroundings == self._surroundings else surroundings
        self._surroundings = surroundings
        pipe: Any = self._process.stdin
        try:
            pipe.write(frame(msgspec.json.encode(changed)) + frame(job))
        except OSError:
            return None
        output = self._receive(limits.STEP_PROCESS_START_SECONDS)
        if output == b"":  # loaded: the code begins
            self.has_begun = True
            begun()
            output = self._receive(None)
        if output is not None:
            self._is_spent = msgspec.json.decode(output, type=Answer).is_spent
        else:
            self.kill()
        return output

    def _receive(self, seconds: float | None) -> bytes | None:
        pipe: Any = self._process.stdout
        if seconds is not None:
            waiting = select.poll()
            waiting.register(pipe.fileno(), select.POLLIN)
            if not waiting.poll(seconds * 1000):
                return None
        return read_frame(pipe)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def end(self) -> str:
        """Let it end, at once or by force, and say how it did."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            status = process.wait(limits.STEP_PROCESS_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        if status >= 0:
            return f"ended with exit status {status}"
        return f"was ended by signal {-status} ({signal.Signals(-status).name})"


def _surroundings() -> Surroundings:
    directory = None
    with contextlib.suppress(OSError):  # it was removed
        directory = os.fsencode(os.getcwd())
    return Surroundings(directory, sorted(os.environb.items()))


def _job(spec: StepSpec, data: bytes, context: StepContext) -> Job:
    return Job(
        module=spec.function.__module__,
        qualname=spec.function.__qualname__,
        main_file=_main_file() if spec.function.__module__ == "__main__" else None,
        path=sys.path,
        arguments=Raw(data),
        run_id=context.run_id,
        location=context.location,
        attempt=context.attempt,
        origin=context.origin,
    )


def _main_file() -> str:
    return os.path.abspath(sys.modules["__main__"].__file__ or "")


async def outcome_of(call: Call) -> bytes:
    """Wait for the answer. Cancelled, it waits until the process is gone: nothing of the attempt goes on after this."""
    try:
        output: bytes = await call.future
    except asyncio.CancelledError:
        if call.over is not None and call.has_begun:
            await asyncio.shield(call.over)
        raise
    return output
