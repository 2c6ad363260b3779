"""Tasks that the clock enqueues: by cron, by interval, and what the next ticks are."""

from datetime import datetime
from zoneinfo import ZoneInfo

from oxpull_async import Oxpull

ox = Oxpull()


@ox.scheduled(cron="30 2 * * mon-fri", timezone="Europe/Berlin", args=("sales",))
@ox.task(queue_name="reports")
async def report(about: str) -> None:
    print("report about", about)


@ox.task
async def poll(feed: str) -> None: ...


news = ox.schedule(poll, every=900, phase=60, name="poll-news", kwargs={"feed": "news"})

if __name__ == "__main__":
    friday = datetime(2026, 6, 5, 12, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    for schedule in ox.schedules:
        print(schedule.name, schedule.next_tick(friday).astimezone(ZoneInfo("Europe/Berlin")))
