"""Imports of one feed one at a time, and a check that gives way to them."""

import asyncio

from oxpull_async import Exclusive, Oxpull, TaskContext, TaskFailed, Worker

ox = Oxpull.in_memory()

begun = asyncio.Event()
fetched = asyncio.Event()
running: list[str] = []
most_at_once: list[int] = []


@ox.task(exclusive=Exclusive(by=("feed_url",), name="feed"), takes_context=True)
async def import_feed(context: TaskContext, feed_url: str, page: int) -> None:
    running.append(feed_url)
    most_at_once.append(running.count(feed_url))
    begun.set()
    await fetched.wait()  # then write it, with context.fence
    running.remove(feed_url)


@ox.task(exclusive=Exclusive(by=("url",), name="feed", on_conflict="skip"))
async def check(url: str) -> None: ...


async def main() -> None:
    async with ox.running(worker=Worker(ox)):
        imports = [await import_feed.enqueue("https://a.example/rss", page) for page in (1, 2, 3)]
        await begun.wait()
        checked = await check.enqueue("https://a.example/rss")
        try:
            await checked.wait(timeout=30)
        except TaskFailed as failed:
            reason = failed.errors[0]["traceback"].strip().rpartition("ExclusiveBusy: ")[2]
            print(f"check: {failed.status}, {reason}")
        fetched.set()
        for result in imports:
            await result.wait(timeout=30)
        print(f"at most {max(most_at_once)} import of a feed at a time, {len(most_at_once)} imports")


asyncio.run(main())
