"""The page and the plot say everything that was found, and nothing else."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree

from bench.__main__ import dump, load
from bench.machine import LOAD
from bench.page import page
from bench.plot import plot
from bench.systems import ABSURD, DBOS_SQLITE, PERDURE, RESTATE, SYSTEMS
from bench.table import show
from rich.console import Console

from support.made_up_figures import figures, rate, whole


def test_the_page_has_figures_ratios_bars_limits_and_facts() -> None:
    text = page(whole(), [PERDURE, DBOS_SQLITE, RESTATE], "plot.svg")
    assert "| cores | 2 |" in text
    assert "| seq (steps/s) | 800 | 100 | missing |" in text
    assert "| seq | 0.80 | 8.00 | missing |" in text
    assert "| seq, the harder bar | ≥ 0.75 x bare commits | 0.80 (0.70 to 0.90) x bare commits | reached |" in text
    assert "| SQLite, one-row commits at FULL | 1,000 (900 to 1,200) |" in text
    assert "](plot.svg)" in text


def test_the_page_names_every_system_with_its_version_and_durability() -> None:
    text = page(whole(), SYSTEMS, "plot.svg")
    for system in SYSTEMS:
        assert system.durability in text
    assert "| DBOS, SQLite | 2 |" in text
    assert "| Restate | not installed: npm is not there |" in text


def test_what_is_missing_is_listed_with_its_reason() -> None:
    text = page(whole(), [PERDURE, DBOS_SQLITE], "plot.svg")
    assert "| DBOS, SQLite | many | failed: no answer in 5 s |" in text
    # A bar in a reason would end the cell of the table.
    assert r"| DBOS, SQLite | empty | does not do this: it <never> ends \| or does it |" in text


def test_a_table_has_the_same_number_of_cells_in_every_line() -> None:
    text = page(whole(), SYSTEMS, "plot.svg").replace(r"\|", "")
    for block in text.split("\n\n"):
        widths = {line.count("|") for line in block.splitlines() if line.startswith("|")}
        assert len(widths) <= 1, block


def test_the_plot_is_an_svg_with_a_bar_for_each_comparison() -> None:
    root = ElementTree.fromstring(plot(whole(), [DBOS_SQLITE, ABSURD]))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "8.00x" in texts
    # Ten workloads and two systems, of which one workload of one system could be compared.
    assert texts.count("not compared") == 19
    colours = [element.get("fill") for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    # The background, two of the legend, one bar.
    assert len(colours) == 4


def test_a_system_that_is_ahead_has_a_bar_to_the_left() -> None:
    root = ElementTree.fromstring(plot(figures(rate("perdure", "seq", 50.0), rate("restate", "seq", 100.0)), [RESTATE]))
    bar = list(root.iter("{http://www.w3.org/2000/svg}rect"))[-1]
    (equal,) = [line for line in root.iter("{http://www.w3.org/2000/svg}line") if line.get("stroke") == "#333333"]
    assert float(bar.get("x", "")) < float(equal.get("x1", ""))


def test_nothing_at_all_still_makes_a_page_and_a_plot() -> None:
    assert "not judged" in page(figures(), SYSTEMS, "plot.svg")
    ElementTree.fromstring(plot(figures(), [RESTATE]))


def test_the_terminal_shows_the_same_ratios() -> None:
    stream = io.StringIO()
    show(whole(), [PERDURE, DBOS_SQLITE], Console(file=stream, width=200))
    assert "times better than" in stream.getvalue()
    assert "8.00" in stream.getvalue()


def test_an_outcome_can_be_kept_and_shown_again() -> None:
    outcome = whole().outcome
    assert page(type(whole())(load(dump(outcome))), SYSTEMS, "x") == page(whole(), SYSTEMS, "x")


def test_a_page_says_by_itself_that_it_is_provisional() -> None:
    rounds = [rate("perdure", "seq", 1.0, number=number) for number in range(3)]
    quiet = page(figures(*rounds, machine={"cores": "2", LOAD: "0.99, 3.00, 3.00"}), SYSTEMS, "x")
    busy = page(figures(*rounds, machine={"cores": "2", LOAD: "1.01, 0.00, 0.00"}), SYSTEMS, "x")
    short = page(figures(*rounds[:2], machine={"cores": "2", LOAD: "0.00, 0.00, 0.00"}), SYSTEMS, "x")
    assert "Provisional" not in quiet
    assert "**Provisional:** the machine was busy (a load of 1.01 on 2 cores)." in busy
    assert "**Provisional:** there were fewer than three rounds." in short
