"""The twins in C do what their Python definitions do: the same bytes, the same locations, the same errors."""

from __future__ import annotations

import os
import random
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from perdure import native
from perdure.kernel import journal
from perdure.kernel.codec import ArgumentsCodec, codec_for
from perdure.kernel.definitions import StepSpec
from perdure.kernel.journal import Record, Row, StepDone, to_row
from perdure.kernel.operation import Branch, StepOperation, encode_step_frontier
from perdure.kernel.retry import RetryPolicy

needs_twins = pytest.mark.skipif(not native.IN_USE, reason="the twins are not in use here")

TEXTS = [
    "", "charge", "charge#2", "poll~17/fetch", 'say "no"', "back\\slash", "tab\there", "ünïcode", "€", "😀", "\x7f",
    "x" * 599, "x" * 600, "x" * 601, "x" * 5_000,
]  # fmt: skip
SCALARS = [None, True, False, 0, 1, -1, 10**18 - 1, 10**18, -(10**18), 2**63, 2**200, 1.5, float("nan"), *TEXTS]


def spec(name: str = "charge") -> StepSpec:
    import inspect

    return StepSpec(
        name=name,
        function=print,
        is_async=True,
        policy=RetryPolicy(),
        arguments=ArgumentsCodec(inspect.signature(lambda number: number), {}, "step"),
        result=codec_for(Any),
        what="the result",
    )


def operation(rng: random.Random, data: bytes = b'{"number":1}') -> StepOperation:
    step = StepOperation(
        rng.choice(TEXTS[1:]), rng.randrange(10**6), rng.randrange(2**52), rng.choice(TEXTS), spec(), None, data
    )
    step.digest = rng.randrange(2**32)
    return step


def definition(name: str) -> Callable[..., Any]:
    return native.definitions[name]


def test_the_twins_are_built_wherever_that_is_possible() -> None:
    """A build that breaks must not go unnoticed because everything works without it, only slower."""
    if os.environ.get("PERDURE_NATIVE") == "off":
        assert not native.IN_USE
        return
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if not headers.exists() or shutil.which(compiler) is None:
        pytest.skip("this machine has no compiler, or not the headers of this Python")
    assert native.IN_USE


@needs_twins
def test_a_record_becomes_the_same_row() -> None:
    rng = random.Random(1)
    bodies = [
        journal.TimerFired("a.py:1"),
        journal.Completed(Raw(b"1")),
        StepDone(Raw(b'"x"'), 1, Raw(b"{}"), 5, "a:1"),
    ]
    for _ in range(300):
        record = Record(rng.randrange(1, 10**7), rng.randrange(2**53), rng.choice(TEXTS), rng.choice(bodies))
        row = to_row(record)
        assert row == definition("to_row")(record)
        assert type(row) is Row


@needs_twins
def test_a_frontier_is_the_same_bytes() -> None:
    rng = random.Random(2)
    for _ in range(300):
        seq, step = rng.randrange(1, 10**7), operation(rng)
        assert encode_step_frontier(seq, step) == definition("encode_step_frontier")(seq, step)


@needs_twins
@pytest.mark.parametrize("value", SCALARS, ids=lambda value: repr(value)[:20])
def test_a_result_becomes_the_same_row_or_is_left_to_python(value: Any) -> None:
    from perdure.native import _kernel

    assert _kernel is not None
    rng = random.Random(3)
    for _ in range(100):
        data = rng.choice(
            (b"{}", b'{"number":1}', b'{"text":"' + b"y" * 590 + b'"}', b'{"text":"' + b"y" * 900 + b'"}')
        )
        step, seq, at, number = operation(rng, data), rng.randrange(1, 10**6), rng.randrange(2**53), rng.randrange(1, 4)
        row = _kernel.step_row(seq, at, step, number, value)
        if row is not None:
            encoded = codec_for(Any).encode(value, "the result")
            body = StepDone(Raw(encoded), number, Raw(data), step.arguments_digest(), step.site)
            assert row == definition("to_row")(Record(seq, at, step.location, body))
    if type(value) is int and abs(value) < 10**18:
        assert _kernel.step_row(1, 2, StepOperation("a", 1, 2, "", spec(), None, b"{}"), 1, value) is not None


@needs_twins
def test_locations_are_the_same() -> None:
    rng = random.Random(4)
    for path in ("", "fetch-all", "ünïcode/poll~3"):
        for single in (False, True):
            ours, theirs = Branch(path, single), Branch(path, single)
            for _ in range(200):
                name = rng.choice(TEXTS[1:])
                assert ours.locate(name) == definition("Branch.locate")(theirs, name)
            assert ours.counts == theirs.counts
