"""The plot of the results: how many times better perdure is than each system, by workload, on a logarithmic scale.

An SVG of rectangles and text, written by hand: it needs no library, and a reader of the repository sees it at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.bars import number
from bench.figures import Figures
from bench.systems import PERDURE, System
from bench.workloads import SHARED

COLOURS = ("#2f6f9f", "#d98032", "#4c9a52", "#b5485d", "#7a5fa3", "#7d7d7d")
LEFT, RIGHT, TOP, BOTTOM = 110, 70, 78, 46
WIDTH, BAR, GAP = 860, 13, 14


def plot(figures: Figures, peers: Sequence[System]) -> str:
    """The SVG text. A workload that could not be compared has no bar, and says so."""
    rows = [
        (workload.name, [figures.advantage(PERDURE.name, peer.name, workload) for peer in peers]) for workload in SHARED
    ]
    values = [found.median for _, cells in rows for found in cells if found]
    low = min([0, *(math.floor(math.log10(max(value, 1e-3))) for value in values)])
    high = max([1, *(math.ceil(math.log10(max(value, 1e-3))) for value in values)])
    group = BAR * max(1, len(peers)) + GAP
    height = TOP + group * len(rows) + BOTTOM

    def place(value: float) -> float:
        share = (math.log10(max(value, 10**low)) - low) / (high - low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(14, 24, f"How many times better: {PERDURE.title} beside each system (logarithmic)", size=15, bold=True),
        *_legend(peers),
    ]
    for power in range(low, high + 1):
        x = place(10.0**power)
        colour = "#333333" if power == 0 else "#dddddd"
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - BOTTOM + 4}" stroke="{colour}"/>')
        parts.append(_text(x, height - BOTTOM + 20, f"{10.0**power:g}x", anchor="middle"))
    parts.append(_text(place(1), height - 8, "equal", anchor="middle"))
    for index, (name, cells) in enumerate(rows):
        top = TOP + index * group
        parts.append(_text(LEFT - 12, top + (group - GAP) / 2 + 4, name, anchor="end", bold=True))
        for offset, found in enumerate(cells):
            y = top + offset * BAR
            if found is None:
                parts.append(_text(place(1) + 4, y + BAR - 3, "not compared", colour="#888888", size=10))
                continue
            start, end = sorted((place(1), place(found.median)))
            parts.append(
                f'<rect x="{start:.1f}" y="{y}" width="{max(end - start, 1):.1f}" height="{BAR - 2}" '
                f'fill="{COLOURS[offset % len(COLOURS)]}"/>'
            )
            parts.append(_text(max(end, place(1)) + 4, y + BAR - 3, f"{number(found.median)}x", size=10))
    return "\n".join([*parts, "</svg>", ""])


def _legend(peers: Sequence[System]) -> list[str]:
    parts, x = [], 14.0
    for index, peer in enumerate(peers):
        parts.append(f'<rect x="{x:.1f}" y="40" width="12" height="12" fill="{COLOURS[index % len(COLOURS)]}"/>')
        parts.append(_text(x + 17, 50, peer.title))
        x += 36 + 7 * len(peer.title)
    return parts


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, colour: str = "#222222", bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{weight}>'
        f"{escape(text)}</text>"
    )
