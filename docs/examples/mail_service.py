"""One application for several worker processes: the queue decides who does what."""

from oxpull_async import Oxpull

ox = Oxpull.from_env()  # OXPULL_DATABASE_URL, OXPULL_LEASE, …


@ox.task(queue_name="mail", timeout=30, max_attempts=5)
async def send_mail(address: str, text: str) -> None:
    print(f"to {address}: {text}")


@ox.task(queue_name="reports", unique=True, timeout=600, max_attempts=2)
async def build_report(day: str) -> str:
    return f"report of {day}"
