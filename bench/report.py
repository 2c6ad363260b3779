"""The figures as a table for people, as Markdown, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oxpull_async.benchmark.report import machine
from oxpull_async.benchmark.rounds import Measured, ratio

HEAD = ("", "per second", "ratio", "target", "")


@dataclass(frozen=True, slots=True)
class Report:
    """One engine's figures."""

    engine: str
    server: str
    rounds: int
    measured: Sequence[Measured]
    notes: Sequence[str] = ()


def as_text(report: Report) -> str:
    """A table with aligned columns."""
    table = [HEAD, *_cells(report)]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEAD))]
    lines = [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in table
    ]
    notes = ["", *report.notes] if report.notes else []
    title = f"{_title(report)}: medians of {report.rounds} interleaved rounds, {machine()}"
    return "\n".join([title, "", *(line.rstrip() for line in lines), *notes])


def as_markdown(report: Report) -> str:
    """A Markdown table."""
    lines = [f"### {_title(report)}", "", f"| {' | '.join(('', *HEAD[1:]))} |", "|---|---:|---:|---:|---|"]
    lines += [f"| {' | '.join(cells)} |" for cells in _cells(report)]
    lines += [f"\n{note}" for note in report.notes]
    return "\n".join(lines)


def as_json(reports: Sequence[Report]) -> str:
    """Every rate of every round."""
    return json.dumps({"machine": machine(), "engines": [_engine(report) for report in reports]}, indent=2)


def _title(report: Report) -> str:
    return f"{report.engine} ({report.server})"


def _engine(report: Report) -> dict[str, object]:
    rows = {
        entry.row.name: {
            "count": entry.row.count,
            "per_second": [round(rate, 1) for rate in entry.rates],
            "median": round(entry.median, 1),
            "beside": entry.row.beside,
            "ratio": _rounded(ratio(entry, report.measured)),
            "target": entry.row.target,
        }
        for entry in report.measured
    }
    return {
        "engine": report.engine,
        "server": report.server,
        "rounds": report.rounds,
        "rows": rows,
        "notes": list(report.notes),
    }


def _cells(report: Report) -> Iterator[tuple[str, ...]]:
    for entry in report.measured:
        found, target = ratio(entry, report.measured), entry.row.target
        rate = f"{entry.median:,.0f}"
        if found is None:
            yield entry.row.name, rate, "", "", ""
        elif target is None:
            yield entry.row.name, rate, f"{found:.2f}", "", ""
        else:
            yield entry.row.name, rate, f"{found:.2f}", f"≥ {target:g}", "" if found >= target else "below"


def _rounded(found: float | None) -> float | None:
    return None if found is None else round(found, 3)
