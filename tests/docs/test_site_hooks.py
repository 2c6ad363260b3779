"""What is made while the site is built: a picture of the figures, and statements beside one another."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from scripts import show_statements
from scripts.plot_figures import PLACE, Engine, engines_in, on_page_markdown
from tests.docs.pages import DOCS

PAGE = f"""
## Figures

{PLACE}

### PostgreSQL (18.0)

|  | per second | ratio | target |
|---|---:|---:|---:|
| floor: one INSERT | 5,157 |  |  |
| plain, bulk | 3,025 | 0.59 | ≥ 0.85 |

### SQLite, synchronous FULL (3.40.1)

|  | per second | ratio | target |
|---|---:|---:|---:|
| plain, bulk | 1,200 | 4.5 | ≥ 0.85 |
| unique & new | 12 | 2 | |

### In words

|  | by hand | bind | ratio |
|---|---:|---:|---:|
| PostgreSQL | 559 | 269 | 0.48 |
"""


def test_each_table_with_ratios_is_an_engine() -> None:
    assert engines_in(PAGE) == [
        Engine("PostgreSQL", {"plain, bulk": 0.59}),
        Engine("SQLite", {"plain, bulk": 4.5, "unique & new": 2.0}),
    ]


def test_the_picture_has_a_bar_for_each_ratio_and_is_well_formed() -> None:
    picture = re.search(r"<svg.*</svg>", on_page_markdown(PAGE))
    assert picture is not None
    drawn = ElementTree.fromstring(picture[0])

    texts = ["".join(text.itertext()) for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text[0].isdigit()] == ["0.59", "4.50", "2.00"]
    assert {"PostgreSQL", "SQLite", "plain, bulk", "unique & new"} <= set(texts)


def test_other_pages_stay_as_they_are() -> None:
    assert on_page_markdown("# Words") == "# Words"


def test_the_page_has_its_picture_of_three_engines() -> None:
    page = (DOCS / "explanation/performance.md").read_text()

    assert PLACE in page
    assert [engine.name for engine in engines_in(page)] == ["PostgreSQL", "SQLite", "MariaDB"]


def test_the_engines_statements_are_shown_as_they_are_in_their_files() -> None:
    page = show_statements.on_page_markdown((DOCS / "explanation/dialects.md").read_text())

    assert "<!-- statements" not in page
    assert page.count('=== "PostgreSQL"') == page.count('=== "SQLite"') == page.count('=== "MariaDB, MySQL"') >= 4
    assert "    ON CONFLICT (key) DO NOTHING\n" in page


def test_a_statement_that_is_gone_is_missed() -> None:
    with pytest.raises(LookupError, match="no_such"):
        show_statements.statement("sqlite/unique", "no_such")
