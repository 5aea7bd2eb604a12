"""The frames of recorded exceptions: what Python, pytest and editors need in order to show the lines that raised.

A journal keeps tracebacks as text (`kernel.values.faults`). A caller that waits for a run gets the exception with
frames made from that text: they have the recorded file, line and function, and nothing else. Python shows the source
line that is in the file now, as it does for any traceback, or none if the file is not there; `RunFailed` has a note
that names the files which changed since.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, TracebackType
from typing import Any, Final

from perdure.errors import RunFailed
from perdure.kernel.journal import Fault
from perdure.kernel.values.faults import FAULTS_MAX, RECORDED_FRAME, TRACEBACK_ATTRIBUTE, decode_error

_LINE: Final = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)')
#: Raises, which is the only way to a frame object that is not running.
_RAISES: Final[CodeType] = compile("0 / 0", "", "exec")
_NO_INSTRUCTION: Final = -1  # so that no column is marked: they were not recorded

_state: Any = BaseException.__dict__


def run_failed(run_id: str, fault: Fault, at: int) -> RunFailed:
    """What the caller of a run that failed at this moment gets: its cause is the recorded error, with its frames."""
    failed = RunFailed(f"run {run_id!r} failed: {fault.type.partition(':')[2]}: {fault.message}")
    failed.__cause__ = decode_error(fault)
    changed = sorted(_changed_since(_give_frames(failed.__cause__), at))
    if changed:
        failed.add_note(f"Changed since the run failed, so that other lines may be shown: {', '.join(changed)}.")
    return failed


def _give_frames(error: BaseException) -> set[str]:
    """Set the traceback of a decoded error and of all its causes and members; returns the files they are in."""
    files: set[str] = set()
    left, seen = [error], {id(error)}
    while left and len(seen) <= FAULTS_MAX:
        one = left.pop()
        lines = list(_recorded_lines(one))
        if lines and one.__traceback__ is None:
            _state["__traceback__"].__set__(one, _traceback(lines))
            files.update(file for file, _, _ in lines)
        for other in (one.__cause__, one.__context__, *_members(one)):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                left.append(other)
    return files


def _members(error: BaseException) -> Iterable[BaseException]:
    return error.exceptions if isinstance(error, BaseExceptionGroup) else ()


def _recorded_lines(error: BaseException) -> Iterator[tuple[str, int, str]]:
    text = _state["__dict__"].__get__(error).get(TRACEBACK_ATTRIBUTE, "")
    for line in str(text).split("\n"):
        if found := _LINE.fullmatch(line):
            yield found["file"], int(found["line"]), found["name"]


def _traceback(lines: list[tuple[str, int, str]]) -> TracebackType | None:
    following: TracebackType | None = None
    for file, line, name in reversed(lines):
        made = _frame_of(file, line, name)
        following = TracebackType(following, made.tb_frame, _NO_INSTRUCTION, line)
    return following


def _frame_of(file: str, line: int, name: str) -> TracebackType:
    code = _RAISES.replace(co_filename=file, co_firstlineno=line, co_name=name.rpartition(".")[2], co_qualname=name)
    try:
        FunctionType(code, {"__builtins__": {}, RECORDED_FRAME: True})()
    except ZeroDivisionError as raised:
        if raised.__traceback__ is not None and raised.__traceback__.tb_next is not None:
            return raised.__traceback__.tb_next
    raise AssertionError("the template raises, in a frame of its own")


def _changed_since(files: Iterable[str], at: int) -> Iterator[str]:
    for file in files:
        try:
            changed = os.stat(file).st_mtime_ns // 1000 > at
        except (OSError, ValueError):
            continue  # not on this machine: nothing of it is shown
        if changed:
            yield file
