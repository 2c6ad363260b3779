"""The pages hang together: links lead somewhere, the front page names every how-to, the house is drawn as it stands."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, name_of

PACKAGE = ROOT / "oxpull_async"
OUTSIDE_THE_SITE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]


@pytest.mark.parametrize("page", OUTSIDE_THE_SITE, ids=name_of)
def test_links_of_pages_outside_the_site_lead_somewhere(page: Path) -> None:
    """Those within are checked when the site is built."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())

    assert [target for target in targets if not (ROOT / target).is_file()] == []


def test_the_front_page_names_every_how_to() -> None:
    front = (DOCS / "index.md").read_text()

    assert [page.name for page in (DOCS / "how-to").glob("*.md") if f"(how-to/{page.name})" not in front] == []


def test_the_house_is_drawn_with_the_layers_that_are_checked() -> None:
    drawn = (DOCS / "explanation/architecture.md").read_text().partition("```text\n")[2].partition("```")[0]
    storeys = [set(re.findall(r"[a-z_]+", storey)) for storey in re.split(r"─+", drawn)]

    checked = [set(re.findall(r"\((\w+)\)", layer)) for layer in layers()]

    assert len(storeys) == len(checked)
    assert [modules - storey for modules, storey in zip(checked, storeys, strict=True)] == [set()] * len(checked)


def layers() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found: list[str] = next(contract["layers"] for contract in contracts if contract["id"] == "one-way")
    return found


def test_the_files_that_the_house_cites_exist() -> None:
    page = (DOCS / "explanation/architecture.md").read_text()
    cited = [path for path in re.findall(r"`([a-z_/]+\.(?:py|sql))`", page) if "/" in path or path == "ports.py"]

    assert cited
    assert [path for path in cited if not (PACKAGE / path).is_file() and not list(PACKAGE.rglob(path))] == []


@pytest.mark.parametrize(
    ("module", "page"),
    [
        ("testing/__init__", "testing"),
        ("integrations/fastapi", "integrations"),
        ("integrations/litestar", "integrations"),
        ("integrations/django/__init__", "integrations"),
        ("integrations/depends", "integrations"),
    ],
)
def test_what_modules_offer_is_in_the_reference(module: str, page: str) -> None:
    reference = (DOCS / f"reference/{page}.md").read_text()

    assert [name for name in offered(module) if not re.search(rf"\b{name}\b", reference)] == []


def offered(module: str) -> list[str]:
    """``__all__``, read without an import: what it needs may not be installed."""
    for node in ast.parse((PACKAGE / f"{module}.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise AssertionError(f"{module} has no __all__")
