"""What may not change while the code is moved: traces and journals of worlds and programs, exports, the CLI's output.

The digests of the first worlds and programs are looked at where those are run anyway (`sim`, `kernel`); here are the
long ones, in every mode, and what people and scripts read.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.cli_kit import invoke, with_engine
from fixtures.journals import record
from perdure import Engine
from perdure.admin.views import error_line
from perdure.cli import text
from perdure.kernel.journal import Fault
from support.frozen import FROZEN, PROGRAMS, PROGRAMS_FROZEN, SETTINGS
from support.processes import first_lines

JOURNALS = Path(record.__file__).parent / "0.1"
MODES: list[dict[str, str]] = [{}, {"PERDURE_FASTLANE": "off"}]


@pytest.mark.long
@pytest.mark.parametrize("name", [*SETTINGS, PROGRAMS])
def test_every_frozen_digest_is_the_same_in_every_mode(name: str) -> None:
    last = PROGRAMS_FROZEN if name == PROGRAMS else SETTINGS[name][1]
    changed = first_lines("support.frozen:print_changed", name, "0", str(last), environments=MODES, patience=3000)
    assert changed == ["none"] * len(MODES)


@pytest.mark.parametrize("name", [*SETTINGS, PROGRAMS])
def test_without_the_fast_path_everything_is_the_same(name: str) -> None:
    """The first worlds of each kind; with it they are looked at where they are run anyway."""
    assert first_lines("support.frozen:print_changed", name, "0", "20", environments=[MODES[1]]) == ["none"]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the runs of the fixtures."""
    store = tmp_path_factory.mktemp("frozen") / "test.db"
    for file in sorted(JOURNALS.glob("*.json")):
        assert invoke("import", str(file), store=store).exit_code == 0
    return store


@pytest.fixture(autouse=True)
def the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ages are shown, so the clock stands still."""
    monkeypatch.setattr(text, "now", lambda: datetime(2026, 11, 20, tzinfo=UTC))


RUNS = (
    "everyday-waiting",
    "everyday-done",
    "family",
    "family/leaf#2",
    "failed",
    "backing-off",
    "loop-done",
    "terminated",
)
COMMANDS = [
    ("ls",),
    ("ls", "--status", "failed"),
    ("events",),
    ("dead-letters", "list"),
    *((command, run) for command in ("show", "history", "why") for run in RUNS),
]


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_what_a_command_prints_is_what_it_printed(
    command: tuple[str, ...], form: str, imported: Path, request: pytest.FixtureRequest
) -> None:
    """To change it on purpose: remove the file, run this twice, and read the difference."""
    printed = invoke(*command, *(["--json"] if form == "json" else []), store=imported)
    assert printed.exit_code == 0
    kept = FROZEN / "output" / f"{' '.join(command).replace('/', '_')}.{form}"
    if not kept.exists():
        kept.write_text(printed.stdout)
        pytest.fail(f"{kept.name} was written: run this again")
    assert printed.stdout == kept.read_text()


@pytest.mark.parametrize("file", sorted(JOURNALS.glob("*.json")), ids=lambda file: file.stem)
def test_a_run_that_was_imported_is_exported_with_the_same_journal(file: Path, tmp_path: Path) -> None:
    store = tmp_path / "test.db"
    run_id = json.loads(file.read_bytes())["body"]["id"]
    assert invoke("import", str(file), store=store).exit_code == 0

    async def export(engine: Engine) -> bytes:
        return await engine.admin.export_run(run_id)

    before, after = json.loads(file.read_bytes()), json.loads(with_engine(store, export, worker=False))
    assert after["body"]["journals"] == before["body"]["journals"]
    assert set(after) == set(before)


def test_the_place_of_an_error_is_found_in_files_without_a_folder() -> None:
    """A traceback of several frames whose files are named without a path, as in a script that was compiled by name."""
    trace = '  File "orders.py", line 81, in charge\n  File "orders.py", line 190, in fulfil'
    assert error_line(Fault("builtins:OSError", "no answer", traceback=trace)) == "OSError: no answer (orders.py:190)"
