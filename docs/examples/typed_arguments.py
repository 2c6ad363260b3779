"""A task that takes a model, an instant and a Decimal."""

import asyncio
from datetime import UTC, date, datetime
from decimal import Decimal

from pydantic import BaseModel

from oxpull_async import InvalidArguments, Oxpull

ox = Oxpull.in_memory()


class Invoice(BaseModel):
    order_id: int
    due: date


@ox.task(pydantic=True, unique=True)
async def send(invoice: Invoice, at: datetime, discount: Decimal = Decimal(0)) -> Invoice:
    print(type(invoice).__name__, at.tzinfo, discount + 1)
    return invoice


async def main() -> None:
    noon = datetime(2026, 11, 30, 12, tzinfo=UTC)
    async with ox:
        result = await send.enqueue(Invoice(order_id=42, due=date(2026, 12, 24)), noon, discount=Decimal("0.10"))
        print(result.args, result.kwargs)
        try:
            await send.enqueue({"order_id": "many"}, noon)  # type: ignore[arg-type]
        except InvalidArguments as error:
            print(error)
        await ox.run_until_idle()
        print(Invoice.model_validate(await result.wait(timeout=5)))


if __name__ == "__main__":
    asyncio.run(main())
