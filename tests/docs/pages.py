"""The documentation as the tests see it: its pages, and the code in them."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL
)
# On a line of its own within two markers: the form in quotes is valid Python, which ruff would format.
_INCLUDE = re.compile(r'^ *--8<--(?: "([^"]+)"$|\n *(\S+)\n *--8<--$)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced piece of code, and the line at which it begins."""

    page: Path
    line: int
    language: str
    code: str

    @property
    def included(self) -> list[str]:
        """The files that it consists of."""
        return _files(self.code)


def blocks(page: Path, language: str) -> list[Block]:
    """The page's fenced blocks in a language, in their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, language, textwrap.dedent(match["body"]))
        for match in _FENCE.finditer(text)
        if match["language"] == language
    ]


def included_files(page: Path) -> list[str]:
    """Every file that the page includes."""
    return _files(page.read_text(encoding="utf-8"))


def name_of(page: Path) -> str:
    """The page's path as people write it."""
    return page.relative_to(ROOT).as_posix()


def _files(text: str) -> list[str]:
    return [quoted or plain for quoted, plain in _INCLUDE.findall(text)]
