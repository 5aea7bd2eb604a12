"""Steps in a process of their own: CPU work that must not hold up the worker, and code that must be killable.

The child imports the step by module and name, gets its arguments as JSON on stdin and answers with JSON, so
nothing is pickled and nothing is inherited. Cancel and timeout end it with SIGKILL. This file is both sides:
`run_isolated` in the worker, `python -m perdure.engine.isolation` in the child.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import sys
from typing import Any

import msgspec
from msgspec import Raw

from perdure.authoring.options import StepOptions
from perdure.authoring.step import Step, StepContext, step_context
from perdure.engine.threads import Carried
from perdure.kernel.definitions import StepSpec
from perdure.kernel.faults import decode_error, encode_error
from perdure.kernel.journal import ABSENT, Fault

#: The name under which the child runs the worker's script: not `__main__`, or its `if __name__ == ...` would run too.
_CHILD_MAIN = "__perdure_isolated__"


class Job(msgspec.Struct, frozen=True):
    """What the child needs to know."""

    module: str
    qualname: str
    main_file: str | None
    path: list[str]
    arguments: Raw
    run_id: str
    location: str
    attempt: int
    origin: str


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    value: Raw = ABSENT
    error: Fault | None = None
    #: Whether the code came to its end and its result cannot be stored: another attempt would only do it once more.
    is_final: bool = False


class ProcessDied(RuntimeError):
    """The process of an isolated step ended without an answer."""


async def run_isolated(spec: StepSpec, data: bytes, context: StepContext) -> Any:
    """Run one attempt in a new process and return its value. Cancelling kills the process."""
    job = Job(
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
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "perdure.engine.isolation",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )  # fmt: skip
    try:
        output, _ = await process.communicate(msgspec.json.encode(job))
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode != 0 or not output:
        raise ProcessDied(
            f"the process of step {context.location!r} ended with exit status {process.returncode} and no answer."
        )
    answer = msgspec.json.decode(output, type=Answer)
    if answer.error is not None:
        fault = _of_main(answer.error) if job.main_file is not None else answer.error
        raise Carried(decode_error(fault), answer.is_final)
    try:
        return spec.result.decode(answer.value, f"the result of step {context.location!r}")
    except Exception as error:
        raise Carried(error, is_final=True) from error


def _of_main(fault: Fault) -> Fault:
    """In the child the script had another name; its exceptions are those of `__main__` here."""
    prefix, _, name = fault.type.partition(":")
    return msgspec.structs.replace(
        fault,
        type=f"__main__:{name}" if prefix == _CHILD_MAIN else fault.type,
        cause=_of_main(fault.cause) if fault.cause is not None else None,
        members=tuple(_of_main(member) for member in fault.members),
    )


def _main_file() -> str | None:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(file) if file else None


# -- in the child ------------------------------------------------------------------------------------------


def _find(job: Job) -> StepSpec:
    if job.main_file is not None:
        import runpy  # only in the child

        namespace: Any = runpy.run_path(job.main_file, run_name=_CHILD_MAIN)
        first, _, rest = job.qualname.partition(".")
        target = namespace[first]
    else:
        target, rest = vars(importlib.import_module(job.module)), job.qualname
        first, _, rest = rest.partition(".")
        target = target[first]
    for part in rest.split(".") if rest else ():
        target = getattr(target, part)
    return (target if isinstance(target, Step) else Step(target, None, StepOptions())).spec


def _answer(job: Job) -> Answer:
    try:
        spec = _find(job)
        step_context.set(StepContext(job.run_id, job.location, spec.name, job.attempt, job.origin))
        args, kwargs = spec.arguments.decode(job.arguments)
        value = spec.function(*args, **kwargs)
        if spec.is_async:
            value = asyncio.run(value)
    except BaseException as error:
        return Answer(error=encode_error(error))
    try:
        return Answer(value=Raw(spec.result.encode(value, f"the result of step {job.location!r}")))
    except BaseException as error:
        return Answer(error=encode_error(error), is_final=True)


def main() -> None:
    # What the step prints must not mix with the answer: stdout becomes stderr, the answer goes to the old stdout.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    sys.path[:] = job.path
    answers.write(msgspec.json.encode(_answer(job)))
    answers.flush()


if __name__ == "__main__":
    main()
