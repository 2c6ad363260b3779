"""What the command line reads from and writes to files: sources that change, signs of life."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oxpull_async.cli.periods import short_period
from oxpull_async.cli.sources import Sources
from oxpull_async.cli.target import UsageError
from oxpull_async.cli.vital_signs import age, touch


def test_a_source_that_is_written_added_or_removed_has_changed(tmp_path: Path) -> None:
    module = tmp_path / "package" / "module.py"
    module.parent.mkdir()
    module.write_text("a = 1")
    sources = Sources(tmp_path)
    assert not sources.have_changed()

    os.utime(module, ns=(1, 1))
    assert sources.have_changed()
    assert not sources.have_changed()
    (tmp_path / "new.py").touch()
    assert sources.have_changed()
    module.unlink()
    assert sources.have_changed()


def test_installed_packages_hidden_folders_and_other_files_are_not_looked_at(tmp_path: Path) -> None:
    sources = Sources(tmp_path)

    for folder in (".venv", "__pycache__", "node_modules", "site-packages"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "module.py").touch()
    (tmp_path / "queue.db").touch()

    assert not sources.have_changed()


def test_a_sign_of_life_has_an_age(tmp_path: Path) -> None:
    file = tmp_path / "alive"
    assert age(file) is None

    touch(file)
    assert file.stat().st_mode & 0o777 == 0o600
    os.utime(file, (1000, 1000))
    old = age(file)
    assert old is not None
    assert old > 1_000_000
    touch(file)
    fresh = age(file)
    assert fresh is not None
    assert fresh < 60


def test_a_link_or_a_folder_is_no_sign_of_life(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.touch()
    link = tmp_path / "link"
    link.symlink_to(target)

    assert age(link) is None
    assert age(tmp_path) is None
    for wrong in (link, tmp_path, tmp_path / "no" / "folder"):
        with pytest.raises(UsageError, match="can't be written"):
            touch(wrong)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (0.6, "1s"), (59, "59s"), (60, "1m 0s"), (3605, "1h 0m"), (90061, "1d 1h"), (86400, "1d 0h")],
)
def test_a_period_is_told_in_two_units(seconds: float, words: str) -> None:
    assert short_period(seconds) == words
