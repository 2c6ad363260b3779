"""The tutorial's second program: what has become of a task."""

import asyncio
import sys

from shop import ox


async def main(task_id: str) -> None:
    async with ox:
        result = await ox.get_result(task_id)
        print(result.status, result.attempts, result.return_value)
        print("value:", await result.wait(timeout=10))


asyncio.run(main(sys.argv[1]))
