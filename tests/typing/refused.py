"""What a checker must refuse: an ignore that isn't needed is a complaint. Read by mypy and pyright, run by nobody."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
from __future__ import annotations

from oxpull_async import Oxpull, TaskContext, TaskRouter, Unique, enqueue, enqueue_many, enqueue_unique

ox = Oxpull("sqlite:///x.db")
router = TaskRouter()


@ox.task
async def plain(order_id: int, text: str = "") -> str:
    return f"{order_id} {text}"


@ox.task(unique=True)
async def send_invoice(order_id: int, *, copy: bool = False) -> str:
    return f"{order_id} {copy}"


@router.task(takes_context=True)
async def with_context(context: TaskContext, name: str) -> None: ...


@ox.task(takes_context=True)  # type: ignore[arg-type]
async def wrong_context(number: int, name: str) -> None: ...


ox.task(priority="high")  # type: ignore[call-overload]


ox.task(unique="yes")  # type: ignore[call-overload]


ox.task(no_such_option=1)  # type: ignore[call-overload]


async def calls() -> None:
    await plain.enqueue("x")  # type: ignore[arg-type]
    await plain.enqueue()  # type: ignore[call-arg]
    await plain.enqueue(1, 2)  # type: ignore[arg-type]
    await plain.enqueue(1, "x", 3)  # type: ignore[call-arg]
    await plain.enqueue(1, no_such=2)  # type: ignore[call-arg]
    await plain.enqueue_unique(None)  # type: ignore[arg-type]
    await send_invoice.enqueue(1, True)  # type: ignore[call-arg]
    await send_invoice.enqueue(1, copy="yes")  # type: ignore[arg-type]
    await with_context.enqueue(1)  # type: ignore[arg-type]
    await with_context.enqueue()  # type: ignore[call-arg]
    await with_context.enqueue("Ann", "Bob")  # type: ignore[call-arg]
    await enqueue(plain, "x")  # type: ignore[arg-type]
    await enqueue(plain)  # type: ignore[call-arg]
    await enqueue_unique(send_invoice, "x")  # type: ignore[arg-type]
    await enqueue_unique(send_invoice, 1, 2)  # type: ignore[arg-type, call-arg]
    await enqueue_unique(with_context, 1)  # type: ignore[arg-type]
    await ox.enqueue(plain, text="x")  # type: ignore[call-arg]
    await ox.enqueue_unique(send_invoice, copy=True)  # type: ignore[call-arg]
    await plain("x")  # type: ignore[arg-type]
    await plain.using(priority=1).enqueue("x")  # type: ignore[arg-type]
    await enqueue_unique(plain.function, 1)  # type: ignore[arg-type]


async def many() -> None:
    await plain.enqueue_many([1, 2])  # type: ignore[list-item]
    await plain.enqueue_many(5)  # type: ignore[arg-type]
    await enqueue_many(plain)  # type: ignore[call-arg]


async def others() -> None:
    plain.using(no_such=1)  # type: ignore[call-arg]
    plain.using(priority="high")  # type: ignore[arg-type]
    Unique(by="order_id")  # type: ignore[arg-type]
    ox.on("no_such_event")  # type: ignore[call-overload]
    await ox.get_result(5)  # type: ignore[arg-type]


Unique(hold="never")  # type: ignore[arg-type]


Unique(on_duplicate="ignore")  # type: ignore[arg-type]


async def keys() -> None:
    await ox.unique.holder(plain, "x")  # type: ignore[arg-type]
    await ox.unique.release(plain, 1)  # type: ignore[call-arg]
