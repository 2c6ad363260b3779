"""A morning in an order service, told in a minute: no server, one SQLite file, everything removed afterwards.

python docs/examples/demo.py
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from oxpull_async import EnqueueResult, Oxpull, TaskContext, TaskFailed, TaskResult, Worker

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Table
except ModuleNotFoundError:
    sys.exit("The demo prints with rich: pip install 'oxpull_async[sqlite,cli]'")

WEBHOOKS_AT_ONCE = 200
MORNING_ORDERS = 300

console = Console(highlight=False)
logging.getLogger("oxpull_async").setLevel(logging.CRITICAL)  # it would tell every failure a second time
folder = tempfile.TemporaryDirectory(prefix="oxpull-demo-")
file = Path(folder.name) / "shop.db"
ox = Oxpull(f"sqlite:///{file}")


@ox.task(unique=True)
async def send_invoice(order_id: int) -> str:
    await asyncio.sleep(0.05)
    return f"invoice of order {order_id} sent"


@ox.task(max_attempts=3, backoff=lambda error, result: 0.4 * result.attempts, takes_context=True)
async def charge(context: TaskContext, order_id: int, bank_is_up_after: int) -> str:
    now = time.strftime("%H:%M:%S")
    if context.attempt <= bank_is_up_after:
        console.print(
            f"  {now}  order {order_id}, attempt {context.attempt} of {context.max_attempts}: [red]the bank is down"
        )
        raise ConnectionError("the bank is down")
    console.print(f"  {now}  order {order_id}, attempt {context.attempt} of {context.max_attempts}: [green]charged")
    return "charged"


async def main() -> None:
    began = time.perf_counter()
    async with ox:
        await ox.migrate()
        console.print(f"An order service keeps its queue in one SQLite file: [dim]{file}")
        first = await three_webhooks()
        await a_crowd_of_webhooks()
        async with ox.running(worker=Worker(ox, concurrency=25)):
            await a_busy_morning()
            await a_bank_that_is_down()
            await the_key_is_free_again(first)
    await what_is_left(first)
    console.print(f"\nThat was all, in {time.perf_counter() - began:.1f} s.")


async def three_webhooks() -> EnqueueResult:
    chapter("1. The payment provider delivers the webhook of order 42 three times")
    table = Table("call", "task", "created")
    results = []
    for number in range(3):
        result = await send_invoice.enqueue(42)
        results.append(result)
        table.add_row(str(number + 1), str(result.id), "[green]yes" if result.created else "no: pending already")
    console.print(table)
    return results[0]


async def a_crowd_of_webhooks() -> None:
    chapter(f"2. {WEBHOOKS_AT_ONCE} webhooks of order 43 arrive at the same moment")
    results = await asyncio.gather(*(send_invoice.enqueue(43) for _ in range(WEBHOOKS_AT_ONCE)))
    created, ids = sum(result.created for result in results), {result.id for result in results}
    console.print(f"  {WEBHOOKS_AT_ONCE} calls, {created} created, {len(ids)} id among all answers")
    console.print(f"  rows of order 43 in the file, counted by sqlite3 itself: [bold]{rows_of_order(43)}")


async def a_busy_morning() -> None:
    chapter(f"3. {MORNING_ORDERS} more orders in one transaction, then a worker with 25 at a time")
    results = await send_invoice.enqueue_many([(order_id,) for order_id in range(100, 100 + MORNING_ORDERS)])
    columns = (TextColumn("  invoices"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=len(results))
        for finished in asyncio.as_completed([result.wait(timeout=30) for result in results]):
            await finished
            progress.advance(bar)
    took = max(finish(result) for result in results) - min(start(result) for result in results)
    console.print(f"  {len(results)} tasks of 50 ms each in {took:.1f} s")


async def a_bank_that_is_down() -> None:
    chapter("4. The bank is down: attempts fail, and are repeated after a while")
    recovers, stays_down = await charge.enqueue(42, 2), await charge.enqueue(43, 99)
    outcomes = await asyncio.gather(recovers.wait(timeout=30), stays_down.wait(timeout=30), return_exceptions=True)
    for result, outcome in zip((recovers, stays_down), outcomes, strict=True):
        console.print(f"  order {result.args[0]}: {result.status} after {result.attempts} attempts", end="")
        if isinstance(outcome, TaskFailed):
            console.print(f", and the row keeps all {len(outcome.errors)} errors")
        else:
            console.print(f", and wait() returned {outcome!r}")


async def the_key_is_free_again(first: EnqueueResult) -> None:
    chapter("5. Order 42 was invoiced, so its key is free again")
    console.print(f"  {first.id}: {await first.wait(timeout=30)!r}")
    later = await send_invoice.enqueue(42)
    console.print(f"  {later.id}: created again: {later.created}")
    await later.wait(timeout=30)


async def what_is_left(first: EnqueueResult) -> None:
    chapter("6. The process ends; the file keeps every result")
    async with Oxpull(f"sqlite:///{file}") as another:
        console.print(f"  another Oxpull on the file: {first.id} is {(await another.get_result(first.id)).status}")
    async with Oxpull.in_memory() as queue:
        note = queue.task(remember)
        result = await note.enqueue("a test")
        console.print(f"  Oxpull.in_memory(), as in tests: {result.status} now, and gone when it is closed")


async def remember(what: str) -> None: ...


def chapter(title: str) -> None:
    console.print()
    console.rule(f"[bold]{title}", align="left")


def rows_of_order(order_id: int) -> int:
    connection = sqlite3.connect(file)
    try:
        counted = "SELECT COUNT(*) FROM django_ox_oxtask WHERE args = ?"
        count: int = connection.execute(counted, (f"[{order_id}]",)).fetchone()[0]
        return count
    finally:
        connection.close()


def start(result: TaskResult) -> float:
    assert result.started_at is not None
    return result.started_at.timestamp()


def finish(result: TaskResult) -> float:
    assert result.finished_at is not None
    return result.finished_at.timestamp()


if __name__ == "__main__":
    with folder:
        asyncio.run(main())
