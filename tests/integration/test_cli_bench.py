"""``oxpull-async bench``: figures of the user's own database, of which nothing is touched and nothing left."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from oxpull_async import InvalidSettings, Settings, StoreError, WrongDatabase
from oxpull_async.benchmark.places import place_in
from oxpull_async.cli import main
from tests.eventually import eventually
from tests.integration.bench_places import LEFT_BEHIND, OWN_SERVERS, clear, leave_behind, names
from tests.integration.competitor import Competitor
from tests.joined.pgbouncer import pgbouncer

Run = Callable[..., tuple[int, str, str]]
SETTINGS = Settings()
TINY = ("--rounds", "1", "--seconds", "0.005")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call the command; returns the exit code and what was printed."""
    monkeypatch.delenv("OXPULL_APP", raising=False)
    monkeypatch.delenv("OXPULL_DATABASE_URL", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["bench", *arguments])
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.out, printed.err

    return run


@pytest.fixture
def left_behind(competitor: Competitor) -> Iterator[None]:
    """Whatever a test leaves behind by intent goes with it."""
    yield
    clear(competitor)


@pytest.mark.timeout(180)
@pytest.mark.engines(*OWN_SERVERS)
def test_a_run_gives_figures_and_leaves_everything_as_it_was(run: Run, migrated_url: str, competitor: Competitor):
    row = competitor.insert_task()

    code, out, err = run("--database", migrated_url, *TINY, "--json")

    assert (code, err) == (0, "")
    figures = json.loads(out)
    assert set(figures) == {
        "server", "server_settings", "machine", "rounds", "round_trip", "rates", "latencies", "says",
    }  # fmt: skip
    assert figures["rounds"] == 1
    assert figures["server_settings"]
    names_of_floors = {rate["name"] for rate in figures["rates"] if rate["beside"] is None}
    assert len(names_of_floors) == 4
    assert {rate["beside"] for rate in figures["rates"]} == {None, *names_of_floors}
    assert all(len(rate["per_second"]) == 1 and rate["count"] >= 10 for rate in figures["rates"])
    assert [latency["samples"] >= 3 for latency in figures["latencies"]] == [True, True]
    assert names(competitor) == []
    assert competitor.statuses() == {row: "READY"}


@pytest.mark.engines("sqlite")
def test_people_get_a_table_and_the_named_file_is_not_even_made(run: Run, database_url: str):
    code, out, err = run("--database", database_url, *TINY)

    assert (code, err) == (0, "")
    assert "synchronous=FULL" in out
    assert "floor: one INSERT at a time" in out
    assert "round trip of a SELECT 1" in out
    assert "With fewer than three rounds a median says little." in out
    assert list(Path(database_url.removeprefix("sqlite:///")).parent.iterdir()) == []


@pytest.mark.engines(*OWN_SERVERS)
@pytest.mark.parametrize("end", ["error", "cancel"])
async def test_the_place_is_removed_however_the_run_ends(database_url: str, end: str):
    entered = asyncio.Event()

    async def measure() -> None:
        async with place_in(database_url, SETTINGS, _never):
            entered.set()
            if end == "error":
                raise ZeroDivisionError
            await asyncio.Event().wait()

    measuring = asyncio.create_task(measure())
    await entered.wait()
    if end == "cancel":
        measuring.cancel()
    await asyncio.wait([measuring])

    assert measuring.cancelled() or isinstance(measuring.exception(), ZeroDivisionError)
    with Competitor(database_url) as competitor:
        assert names(competitor) == []


@pytest.mark.engines(*OWN_SERVERS)
async def test_what_a_killed_run_left_is_removed_by_the_next(
    migrated_url: str, competitor: Competitor, left_behind: None
):
    leave_behind(competitor)
    told: list[str] = []

    async with place_in(migrated_url, SETTINGS, told.append):
        assert LEFT_BEHIND not in names(competitor)

    assert len(told) == 1
    assert LEFT_BEHIND in told[0]
    assert "removed" in told[0]


@pytest.mark.engines(*OWN_SERVERS)
async def test_what_only_has_such_a_name_stays(migrated_url: str, competitor: Competitor, left_behind: None):
    leave_behind(competitor, marked=False)

    async with place_in(migrated_url, SETTINGS, lambda words: None):
        pass

    assert names(competitor) == [LEFT_BEHIND]


@pytest.mark.engines(*OWN_SERVERS)
async def test_a_run_that_is_under_way_keeps_its_place(migrated_url: str, competitor: Competitor):
    told: list[str] = []

    async with place_in(migrated_url, SETTINGS, _never) as first:
        async with place_in(migrated_url, SETTINGS, told.append):
            assert len(names(competitor)) == 2
        (left,) = names(competitor)
        assert left in first.name
        assert left in first.url

    assert len(told) == 1
    assert "another run" in told[0]


@pytest.mark.timeout(180)
@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_and_nothing_is_left(migrated_url: str, competitor: Competitor, number: signal.Signals):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "oxpull_async", "bench", "--database", migrated_url, "--rounds", "1000",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        folder = Path(migrated_url.removeprefix("sqlite:///")).parent
        await eventually(lambda: bool(list(folder.glob("oxpull_bench_*/bench.db"))), within=60)
        process.send_signal(number)
        _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()

    assert process.returncode == 128 + number
    assert "removing what was made" in said.decode()
    assert "Traceback" not in said.decode()
    assert names(competitor) == []


@pytest.mark.engines("postgres")
async def test_a_user_without_the_privilege_is_told_what_to_grant(migrated_url: str, competitor: Competitor):
    competitor.run("DROP ROLE IF EXISTS bench_reader")
    competitor.run("CREATE ROLE bench_reader LOGIN PASSWORD 'secret'")
    try:
        with pytest.raises(StoreError, match="GRANT CREATE ON DATABASE .* TO bench_reader") as refused:
            async with place_in(_as(migrated_url, "bench_reader:secret"), SETTINGS, _never):
                pass
    finally:
        competitor.run("DROP ROLE bench_reader")

    assert refused.value.code == "42501"


@pytest.mark.engines("mariadb")
async def test_a_user_without_the_privilege_is_told_which_names_to_grant(migrated_url: str, competitor: Competitor):
    database = urlsplit(migrated_url).path.lstrip("/")
    competitor.run("DROP USER IF EXISTS bench_reader")
    competitor.run("CREATE USER bench_reader IDENTIFIED BY 'secret'")
    competitor.run(f"GRANT ALL ON {database}.* TO bench_reader")
    try:
        with pytest.raises(StoreError, match=r"GRANT ALL ON `oxpull\\_bench\\_%`\.\* TO 'bench_reader'@'%'") as refused:
            async with place_in(_as(migrated_url, "bench_reader:secret"), SETTINGS, _never):
                pass
        competitor.run(r"GRANT ALL ON `oxpull\_bench\_%`.* TO 'bench_reader'@'%'")
        async with place_in(_as(migrated_url, "bench_reader:secret"), SETTINGS, _never):
            assert len(names(competitor)) == 1
    finally:
        competitor.run("DROP USER bench_reader")

    assert refused.value.code == 1044
    assert names(competitor) == []


@pytest.mark.engines("postgres")
async def test_nothing_is_measured_through_a_pooler(migrated_url: str, competitor: Competitor):
    with pgbouncer(migrated_url) as pooler, pytest.raises(WrongDatabase, match="URL of PostgreSQL itself"):
        async with place_in(pooler.url, Settings(statement_cache=False), _never):
            pass

    assert names(competitor) == []


async def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "mkdir", refused)

    with pytest.raises(StoreError, match="no folder can be made"):
        async with place_in(f"sqlite:///{tmp_path / 'shop.db'}", SETTINGS, _never):
            pass


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:////nowhere/at/all/shop.db", "there is no folder"),
        ("oracle://shop", "is no database of ours"),
    ],
)
def test_a_url_that_cannot_serve_is_a_wrong_call(run: Run, url: str, words: str):
    code, out, err = run("--database", url)

    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("wrong", [("--rounds", "0"), ("--seconds", "0"), ("--seconds", "nan")])
def test_amounts_that_measure_nothing_are_a_wrong_call(run: Run, wrong: tuple[str, str]):
    assert run("--database", "sqlite:///shop.db", *wrong)[0] == 2


async def test_what_is_raised_for_memory_is_the_libraries_own():
    with pytest.raises(InvalidSettings):
        async with place_in("sqlite://", SETTINGS, _never):
            pass


def _never(words: str) -> None:
    raise AssertionError(words)


def _as(url: str, login: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}").geturl()
