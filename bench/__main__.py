"""``python -m bench``: measures and prints."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from bench.engines import Engine, engines, opened
from bench.report import Report, as_json, as_markdown, as_text
from bench.rows import rows
from bench.working import notes
from oxpull_async.benchmark.rounds import measure
from oxpull_async.benchmark.rows import DRAIN, Row
from tests.servers import ServerMissing


def main(arguments: list[str] | None = None) -> int:
    """Measure what was asked for; 1 if not one engine could be measured, 2 if there is no such row."""
    options = _options(arguments)
    chosen = [engine for engine in engines(options.engine) if _wanted(engine, options)]
    if not chosen:
        every = dict.fromkeys(
            row.name for engine in engines(options.engine) for row in rows(options.scale, engine.name)
        )
        print(f"no row's name contains {options.only!r}; they are:", *every, sep="\n  ", file=sys.stderr)
        return 2
    reports = [report for engine in chosen if (report := _report(engine, options))]
    if options.json:
        options.json.write_text(as_json(reports) + "\n", encoding="utf-8")
    return 0 if reports else 1


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--engine", choices=["postgres", "sqlite", "mariadb"], help="this one alone; else all")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds to take medians of (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of every count to do (1.0)")
    parser.add_argument("--only", default="", help="rows whose name contains this, and what they stand beside")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every rate to this file")
    return parser.parse_args(arguments)


def _report(engine: Engine, options: argparse.Namespace) -> Report | None:
    try:
        report = asyncio.run(_measure(engine, options))
    except ServerMissing as missing:
        print(f"{engine.name}: skipped, {missing}", file=sys.stderr)
        return None
    print(as_markdown(report) if options.markdown else as_text(report), end="\n\n", flush=True)
    return report


async def _measure(engine: Engine, options: argparse.Namespace) -> Report:
    wanted = _wanted(engine, options)
    async with opened(engine) as (ox, floor):
        server = ox.store.capabilities
        measured = await measure(ox, floor, list(wanted.values()), options.rounds, _say)
        said = await notes(ox, floor, options.scale, engine.name) if DRAIN in wanted else []
        return Report(engine.name, f"{server.engine} {server.server_version}", options.rounds, measured, said)


def _wanted(engine: Engine, options: argparse.Namespace) -> dict[str, Row]:
    """The rows that were asked for, and those that they stand beside."""
    every = {row.name: row for row in rows(options.scale, engine.name)}
    wanted = {name for name in every if options.only in name}
    for _ in range(2):
        wanted |= {beside for name in wanted if (beside := every[name].beside)}
    return {name: row for name, row in every.items() if name in wanted}


def _say(words: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
