"""The documentation is true: its programs run, its links lead somewhere, its names exist."""

from __future__ import annotations

import ast
import re
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, errors
from perdure.cli.main import COMMANDS
from perdure.engine.settings import Settings
from support.lives import Lives
from support.pages import BLOCK, ROOT, Block, blocks_of

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])
TUTORIAL = ROOT / "docs" / "tutorial" / "first-workflow.md"

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?:^|`)perdure ([a-z][a-z-]*)\b", re.M)
PATIENCE_SECONDS = 30.0


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
#: The files of the tutorial and of the first fleet are run by the tests that follow these pages.
RUNNABLE = [block for block in PYTHON if block.runnable and block.file is None]


def _python(file: Path) -> list[str]:
    return [sys.executable, "-W", "error", str(file)]


def _in_page(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_there_is_something_to_check() -> None:
    """The patterns above find what they are meant to."""
    assert len(RUNNABLE) >= 10
    assert {block.file for block in PYTHON if block.file} == {"trip.py", "visit.py", "shop.py"}
    assert BLOCKS[0].page.name < "z"
    for page in PAGES:
        fences = len(re.findall(r"^```", page.read_text(), re.M))
        assert fences == 2 * len(blocks_of(page)), f"an unclosed block in {page.name}"
        markers = page.read_text().count("<!-- runnable")
        assert markers == sum(block.runnable for block in blocks_of(page)), f"a marker without its block in {page.name}"


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
def test_python_in_the_docs_is_python(block: Block) -> None:
    """Also the fragments that are not complete programs."""
    compile(block.text, block.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", RUNNABLE, ids=lambda block: block.name)
def test_a_program_in_the_docs_runs(block: Block, tmp_path: Path) -> None:
    """In a directory and a process of its own, with warnings as errors."""
    file = tmp_path / "program.py"
    file.write_text(block.text)
    done = subprocess.run(_python(file), cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_tutorial_survives_its_own_kill(tmp_path: Path) -> None:
    """Its program is killed after two bookings; the second life books the rest, and a third one nothing."""
    for block in blocks_of(TUTORIAL):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text)
    trip = _python(tmp_path / "trip.py")
    with subprocess.Popen(trip, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        seen = [first.stdout.readline() for _ in range(3)]  # the third booking begins when two are recorded
        first.send_signal(signal.SIGKILL)
    assert seen == [f"booking {what} in Lisbon ...\n" for what in ("flight", "hotel", "car")]
    second = subprocess.run(trip, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert [line.split(" ")[1] for line in second.stdout.splitlines()[:-1]] == ["car", "museum", "dinner"]
    assert second.stdout.splitlines()[-1] in TUTORIAL.read_text()
    third = subprocess.run(trip, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert third.stdout.splitlines() == second.stdout.splitlines()[-1:]
    visit = _python(tmp_path / "visit.py")
    visited = subprocess.run(visit, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert visited.stdout == "a table for 4\n", visited.stderr


@pytest.mark.parametrize("page", PAGES, ids=_in_page)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    inside = [target.partition("#") for target in LINK.findall(text) if "://" not in target]
    assert [path for path, _, _ in inside if not (page.parent / path).exists()] == []
    places = [(page.parent / path if path else page, place) for path, _, place in inside if place]
    assert [f"{path.name}#{place}" for path, place in places if place not in _anchors(path)] == []


def _anchors(page: Path) -> set[str]:
    """Of headings, as they are made by the forge, and those that are written out."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.M)
    made = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([\w-]+)">', text))


def _commands(page: Path) -> set[str]:
    """Named in a shell block, or in `backticks`."""
    shell = "\n".join(block.text for block in blocks_of(page) if block.language == "sh")
    spans = "\n".join(re.findall(r"`[^`\n]+`", BLOCK.sub("", page.read_text())))
    return {*COMMAND.findall(shell), *COMMAND.findall(spans)}


@pytest.mark.parametrize("page", PAGES, ids=_in_page)
def test_every_command_named_exists(page: Path) -> None:
    assert _commands(page) <= set(COMMANDS)


def test_every_command_is_in_the_reference() -> None:
    assert _commands(ROOT / "docs" / "reference" / "cli.md") == set(COMMANDS)


def _table(page: str) -> dict[str, str]:
    """First column, in backticks, to the second."""
    text = (ROOT / "docs" / "reference" / page).read_text()
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) \|", text, re.M))


def test_every_setting_is_documented_with_its_default() -> None:
    """And nothing is documented that cannot be set."""
    defaults = Settings()
    expected = {name: str(getattr(defaults, name)) for name in Settings.__struct_fields__}
    assert {name: text.strip("`") for name, text in _table("settings.md").items()} == expected


def test_every_option_of_a_postgresql_url_is_documented() -> None:
    """With the defaults that perdure adds, and nothing that is refused."""
    from perdure.store.postgres.url import _KNOWN, DEFAULTS, Location

    text = (ROOT / "docs" / "how-to" / "run-on-postgresql.md").read_text()
    tables = text.partition("## The URL")[2].partition("## Roles")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", tables, re.M))
    passed_on = re.findall(r"`(\w+)`", "".join(line for line in tables.splitlines() if re.match(r"\| [a-zT]", line)))
    assert {*rows, *passed_on} >= _KNOWN
    assert {*rows, *(name for name in passed_on if name not in ("on", "off"))} - _KNOWN <= {"default"}
    own = Location(parameters={}, shown="")
    assert rows == {
        **DEFAULTS,
        "target_session_attrs": "any",
        **{name: getattr(own, name) for name in ("schema", "durability", "prepare", "push")},
    }


def test_every_step_option_is_documented() -> None:
    from perdure.authoring.options import Options

    assert set(_table("step-options.md")) == set(Options.__annotations__)


def test_every_error_code_is_documented_with_its_class() -> None:
    """The tree in errors.py and the reference say the same."""
    text = (ROOT / "docs" / "reference" / "errors.md").read_text()
    documented = {name: code for code, name in re.findall(r"^\| (P-\d{3}) \| `(\w+)`", text, re.M)}
    assert documented == dict(re.findall(r"(\w+)\s+(P-\d{3})", errors.__doc__ or ""))


def test_every_record_kind_is_documented() -> None:
    from perdure.kernel.journal import BODIES

    text = (ROOT / "docs" / "reference" / "journal.md").read_text()
    assert [kind for kind in BODIES if f"`{kind}`" not in text] == []


def test_every_public_verb_is_documented() -> None:
    """Functions and objects people call; classes of errors are in their own page."""
    import perdure

    text = (ROOT / "docs" / "reference" / "verbs.md").read_text()
    public = [name for name in dir(perdure) if not name.startswith("_") and name[0].islower()]
    verbs = [name for name in public if not isinstance(getattr(perdure, name), types.ModuleType)]
    assert [name for name in verbs if not re.search(rf"\b{name}\b", text)] == []


def test_every_name_of_the_testing_package_is_documented() -> None:
    """And every option and call of its engine."""
    import types

    from perdure import testing

    text = (ROOT / "docs" / "reference" / "testing.md").read_text()
    public = [name for name, value in vars(testing).items() if not isinstance(value, types.ModuleType)]
    own = [name for name in vars(testing.VirtualEngine) if not hasattr(Engine, name)]
    names = [name for name in (*public, *own) if not name.startswith("_") and name != "time"]
    assert len(names) > 20
    assert [name for name in names if not re.search(rf"`[^`]*\b{name}\b", text)] == []


def test_decisions_are_short_and_numbered() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    numbers = [page.name[:4] for page in pages]
    assert len(numbers) == len(set(numbers)), "two decisions under one number"
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for page in pages:
        assert len(page.read_text().splitlines()) <= 60
        assert page.name in index


def test_the_crash_test_of_contributing_passes(lives: Lives) -> None:
    """The first block of CONTRIBUTING.md is a test; this calls it."""
    block = next(block for block in blocks_of(ROOT / "CONTRIBUTING.md") if block.language == "python")
    names: dict[str, Any] = {"__name__": "contributing"}
    exec(compile(block.text, block.name, "exec"), names)
    names["test_a_crash_at_every_record_changes_nothing"](lives)
