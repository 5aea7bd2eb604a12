"""The lint finds what a replay would not repeat, names the line and what to write, and leaves the rest alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lint import forbidden
from lint.allowed import ALLOWED
from lint.forbidden import FORBIDDEN
from perdure.authoring.lint import lint

SOURCE = Path(forbidden.__file__).read_text().splitlines()


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_it_is_found_with_its_line_and_what_to_write(name: str) -> None:
    flow, what, instead = FORBIDDEN[name]
    here = re.compile(rf"# .*\bhere {name}(,|$)")
    line = next(number for number, text in enumerate(SOURCE, 1) if here.search(text))
    found = [finding for finding in lint(flow) if finding.line == line and what in finding.what]
    assert found, [str(one) for one in lint(flow)]
    assert instead in found[0].instead
    assert found[0].file == forbidden.__file__
    assert len(lint(flow)) == 1, [str(one) for one in lint(flow)]


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_allowed_code_raises_nothing(name: str) -> None:
    assert [str(one) for one in lint(ALLOWED[name])] == []


def test_both_lists_are_long() -> None:
    assert len(FORBIDDEN) >= 40
    assert len(ALLOWED) >= 40


def test_helpers_are_named() -> None:
    (found,) = lint(FORBIDDEN["helper_of_a_helper"][0])
    assert found.through == ("helper_of_helper", "helper_reads_the_clock")
    assert "through 'helper_of_helper' and 'helper_reads_the_clock'" in str(found)


def _check(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "perdure", "check", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("as_json", [False, True])
def test_check_static_needs_no_store_and_names_every_place(tmp_path: Path, as_json: bool) -> None:
    """All of it, by `perdure check --static`."""
    app = tmp_path / "linted_app.py"
    app.write_text(
        "import os\nfrom perdure import workflow\n\n"
        "@workflow\nasync def bad_one():\n    return os.getpid()\n\n"
        "@workflow\nasync def good_one():\n    return 1\n"
    )
    flags = ["--json"] if as_json else []
    store = tmp_path / "none.db"
    bad = _check("--static", "--app", str(app), "--store", str(store), *flags)
    assert bad.returncode == 6, bad.stderr
    if as_json:
        (finding,) = json.loads(bad.stdout)["findings"]
        assert (finding["line"], finding["workflow"]) == (6, "bad_one")
    else:
        assert f"{app}:6: workflow 'bad_one' calls os.getpid(): move it into a step" in bad.stdout.replace("\n", "")
        assert "2 workflows read, 1 findings" in bad.stdout
    good = _check("--static", "--workflow", "good_one", "--app", str(app), "--store", str(store), *flags)
    assert good.returncode == 0, good.stderr
    assert not store.exists()
