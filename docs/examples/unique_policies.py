"""What a duplicate does, one way after the other."""

import asyncio

from oxpull_async import DuplicateTask, Oxpull, Unique, Worker

ox = Oxpull.in_memory()
ran: list[tuple[str, int]] = []
started = asyncio.Semaphore(0)
gate = asyncio.Event()


@ox.task(unique=Unique(by=("feed",), on_duplicate="raise"))
async def subscribe(feed: str, version: int = 0) -> None: ...


@ox.task(run_after=10, unique=Unique(by=("feed",), on_duplicate="reschedule", max_delay=60))
async def publish(feed: str, version: int = 0) -> None: ...


@ox.task(run_after=10, unique=Unique(by=("feed",), on_duplicate="replace"))
async def save(feed: str, version: int = 0) -> None: ...


@ox.task(unique=Unique(by=("feed",), on_duplicate="rerun"))
async def reindex(feed: str, version: int = 0) -> None:
    ran.append(("reindex", version))
    started.release()
    await gate.wait()


@ox.task(unique=Unique(by=("feed",), hold="ready"))
async def fetch(feed: str, version: int = 0) -> None:
    ran.append(("fetch", version))
    started.release()
    await gate.wait()


@ox.task(unique=Unique(by=("feed",), window=300))
async def alert(feed: str, version: int = 0) -> None:
    ran.append(("alert", version))
    started.release()


async def while_they_wait() -> None:
    await subscribe.enqueue("news", 1)
    try:
        await subscribe.enqueue("news", 2)
    except DuplicateTask as duplicate:
        print(f"raise: DuplicateTask, the holder is {duplicate.holder.status}")

    first = await publish.enqueue("news", 1)
    again = await publish.using(run_after=3600).enqueue("news", 2)
    assert again.id == first.id
    assert again.run_after is not None
    print(f"reschedule: one row, {(again.run_after - first.enqueued_at).total_seconds():.0f} s later at most")

    for version in (1, 2):
        await save.enqueue("news", version)
    print(f"replace: one row, for {(await save.enqueue('news', 3)).args}")


async def while_they_run() -> None:
    async with ox.running(worker=Worker(ox)):
        first = [await task.enqueue("news", 1) for task in (reindex, fetch, alert)]
        for _ in range(3):
            await started.acquire()
        for version in (2, 3):
            await reindex.enqueue("news", version)
        waiting = [await fetch.using(run_after=1).enqueue("news", version) for version in (2, 3)]
        assert [result.created for result in waiting] == [True, False]
        await first[2].wait(timeout=10)
        assert not (await alert.enqueue("news", 2)).created
        gate.set()
        for _ in range(2):
            await started.acquire()
    for name, words in (("reindex", "rerun"), ("fetch", 'hold="ready"'), ("alert", "window")):
        print(f"{words}: ran for {[version for task, version in ran if task == name]}")


async def main() -> None:
    async with ox:
        await while_they_wait()
        await while_they_run()


if __name__ == "__main__":
    asyncio.run(main())
