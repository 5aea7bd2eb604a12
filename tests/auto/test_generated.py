"""Random programs do the same in auto mode as in plain Python: live, with a replay before every turn, after crashes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from auto.comparing import compare, plainly
from auto.grammar import Program, done
from perdure import workflow
from perdure.testing import Effects

#: More effects make a program slower to rehearse, not more telling.
EFFECTS_MAX = 30
POINTS_MAX = 16


def _function(program: Program, folder: Path) -> Any:
    """The program as a function of a file: auto mode reads the source."""
    file = folder / f"{program.name}.py"
    file.write_text(program.text)
    names: dict[str, Any] = {"__name__": program.name, "__file__": str(file)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # a random program may say `1 is 1`
        exec(compile(program.text, str(file), "exec"), names)
    return names[program.name]


def _check(seed: int, folder: Path) -> bool:
    """Whether the program was worth trying."""
    program = Program(seed)
    function = _function(program, folder)
    args = (seed % 5, seed % 3)
    if not 2 <= len(plainly(function, args, done).effects) <= EFFECTS_MAX:
        return False
    flow = workflow(auto=True, max_attempts=1)(function)
    try:
        compare(function, flow, args, done, points_max=POINTS_MAX)
    except Exception as error:
        error.add_note(f"program {seed}:\n{program.text}")
        raise
    return True


@pytest.mark.parametrize("first", range(0, 50, 10))
def test_random_programs_do_the_same_as_plain_python(first: int, tmp_path: Path) -> None:
    """CONFORMANCE A1, A2, A3: values, exceptions and effects, in three ways."""
    tried = sum(_check(seed, tmp_path) for seed in range(first, first + 10))
    assert tried >= 4, "most programs are too small or too large"


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_000, 3_000, 100))
def test_many_random_programs_do_the_same_as_plain_python(first: int, tmp_path: Path) -> None:
    """Auto mode changes nothing that a program can see, live and replayed. CONFORMANCE A1, A2, A3."""
    assert sum(_check(seed, tmp_path) for seed in range(first, first + 100)) >= 40


def test_the_same_seed_gives_the_same_program() -> None:
    assert Program(7).text == Program(7).text != Program(8).text


def test_a_difference_would_be_found(tmp_path: Path) -> None:
    """The comparison is no formality: another program's result is told apart."""
    seen: Effects = done
    first, second = (_function(Program(seed), tmp_path) for seed in (1, 2))
    flow = workflow(auto=True, max_attempts=1, name="another-program")(second)
    with pytest.raises(AssertionError, match="plain Python"):
        compare(first, flow, (1, 1), seen)
