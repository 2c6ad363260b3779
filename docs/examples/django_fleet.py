"""An async service beside a Django project with django-ox: enqueues the Django side's task, unique with it."""

from oxpull_async import Oxpull

ox = Oxpull()  # OXPULL_DATABASE_URL names the Django project's database

send_invoice = ox.reference("shop.tasks.send_invoice", queue_name="mail", unique=True)


async def invoice_paid_order(order_id: int) -> bool:
    """Whether this call has made a task row; False where either side had one pending."""
    result = await send_invoice.enqueue(order_id)
    return result.created
