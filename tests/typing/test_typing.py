"""Users' code is checked by mypy and pyright: right calls pass, wrong arguments are refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

pytestmark = pytest.mark.timeout(300)


FILES = [HERE / "accepted.py", HERE / "refused.py"]

Complaints = dict[Path, dict[int, str]]


@cache
def mypy() -> Complaints:
    """What mypy --strict complains of, by file and line."""
    answer = run(
        "-m", "mypy", "--strict", "--config-file", os.devnull, "--python-version", "3.11", "--no-error-summary",
        "--cache-dir", str(ROOT / ".mypy_cache" / "typing"), *map(str, FILES),
    )  # fmt: skip
    assert answer.returncode in (0, 1), answer.stdout + answer.stderr
    complaints: Complaints = {file: {} for file in FILES}
    for file, line, complaint in re.findall(r"^(.*?):(\d+): error: (.*)$", answer.stdout, re.MULTILINE):
        complaints[ROOT / file][int(line)] = complaint
    return complaints


@cache
def pyright() -> Complaints:
    """What pyright complains of in its strict mode, by file and line."""
    answer = run("-m", "pyright", "--outputjson", "--pythonversion", "3.11", *map(str, FILES))
    assert answer.returncode in (0, 1), answer.stdout + answer.stderr
    report = json.loads(answer.stdout)
    assert report["summary"]["filesAnalyzed"] == len(FILES)
    complaints: Complaints = {file: {} for file in FILES}
    for found in report["generalDiagnostics"]:
        if found["severity"] == "error":
            complaints[Path(found["file"])][found["range"]["start"]["line"] + 1] = found["message"]
    return complaints


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


both = pytest.mark.parametrize("checker", [mypy, pyright])


@both
def test_what_a_user_may_write_is_accepted(checker: Callable[[], Complaints]):
    assert checker()[HERE / "accepted.py"] == {}


@both
def test_wrong_arguments_are_refused(checker: Callable[[], Complaints]):
    """Each has a comment that ignores the complaint; where there is none, the comment is complained of."""
    assert checker()[HERE / "refused.py"] == {}
