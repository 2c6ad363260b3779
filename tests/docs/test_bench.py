"""The benchmark runs, and reports what it measured."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import growth
from bench.__main__ import main
from bench.engines import engines
from bench.rows import rows


@pytest.mark.timeout(180)
def test_a_small_run_reports_every_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "figures.json"
    monkeypatch.setattr("bench.__main__.engines", lambda name: engines(name)[:1])

    assert main(["--engine", "sqlite", "--rounds", "1", "--scale", "0.002", "--json", str(file)]) == 0

    (engine,) = json.loads(file.read_text())["engines"]
    assert engine["engine"] == "SQLite, synchronous FULL"
    assert list(engine["rows"]) == [row.name for row in rows(1)]
    assert all(len(figures["per_second"]) == 1 for figures in engine["rows"].values())
    assert "SQLite, synchronous FULL" in capsys.readouterr().out


def test_rows_can_be_chosen_and_bring_what_they_stand_beside(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--engine", "sqlite", "--rounds", "1", "--scale", "0.005", "--only", "unique, in bulk", "--markdown"])

    shown = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert shown == [
        "", "floor: bulk INSERT", "plain, in bulk", "unique, in bulk",
        "", "floor: bulk INSERT", "plain, in bulk", "unique, in bulk",
    ]  # fmt: skip


def test_what_looking_at_batches_costs_is_measured_and_plotted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "growth.svg"
    options = ["--members", "10,100", "--foreign", "0,50", "--times", "1", "--watched", "0.05", "--svg", str(file)]

    assert growth.main(["--engine", "sqlite", *options]) == 0

    shown = capsys.readouterr().out
    assert shown.count("\n| 10 | ") == shown.count("\n| 100 | ") == 4
    assert ElementTree.parse(file).getroot().tag.endswith("svg")


def test_a_choice_of_no_row_names_the_rows_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--engine", "sqlite", "--only", "no such row"]) == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert "'no such row'" in shown.err
    assert "plain, in bulk" in shown.err
