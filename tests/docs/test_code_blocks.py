"""Every piece of Python in the pages runs: included from an example that is run, or run from the page."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from oxpull_async import Oxpull
from tests.docs.pages import EXAMPLES, PAGES, ROOT, blocks, included_files, name_of

WITH_CODE = [page for page in PAGES if blocks(page, "python")]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
async def test_code_in_a_page_runs_from_top_to_bottom(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OXPULL_DATABASE_URL", "sqlite:///page.db")
    async with Oxpull.in_memory() as ox:
        names: dict[str, Any] = {"__name__": f"page_{page.stem.replace('-', '_').lower()}", "ox": ox}
        for block in blocks(page, "python"):
            if not block.included and not is_an_example(block.code):
                await run(block.code, f"{name_of(page)}, line {block.line}", names)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_includes_exists(page: Path) -> None:
    assert [file for file in included_files(page) if not (ROOT / file).is_file()] == []


def test_the_readme_shows_the_example_that_is_run() -> None:
    shown = [block.code for block in blocks(ROOT / "README.md", "python")]

    assert (EXAMPLES / "readme.py").read_text() in shown


def is_an_example(code: str) -> bool:
    return code == (EXAMPLES / "readme.py").read_text()


async def run(code: str, place: str, names: dict[str, Any]) -> None:
    compiled = compile(code, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    answer = eval(compiled, names)
    if inspect.isawaitable(answer):
        await answer


def test_every_example_but_the_demo_is_shown_in_a_page() -> None:
    shown = {Path(file).name for page in PAGES for file in included_files(page)}

    assert {file.name for file in EXAMPLES.glob("*.py")} - shown == {"demo.py"}
