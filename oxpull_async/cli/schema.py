"""``migrate`` and ``sql``: the tables."""

from __future__ import annotations

from oxpull_async.cli.options import Flag, Where
from oxpull_async.cli.output import show
from oxpull_async.cli.target import DATABASE_VARIABLE, Target, UsageError
from oxpull_async.drivers import schema_script
from oxpull_async.settings import settings_from_environment


async def migrate(
    *,
    target: Where = None,
    lean: Flag = False,
    json: Flag = False,
) -> None:
    """Create the tables and indexes that are missing.

    Tables that are there already, Django's included, are adopted as they are.
    Safe beside running workers, and beside another process that does the same.

    Parameters
    ----------
    lean
        Leave out the indexes that only Django workers need.
    json
        Print JSON.
    """
    async with (target or Target()).find() as ox:
        steps = await ox.migrate(lean=lean)
    show({"applied": list(steps)}, as_json=json)


def sql(*, target: Where = None, lean: Flag = False) -> None:
    """Print the schema as SQL, for a migration tool of your own. Connects to nothing.

    The URL's scheme chooses the dialect; ``mariadb://`` means MariaDB 10.7 or later.

    Parameters
    ----------
    lean
        Leave out the indexes that only Django workers need.
    """
    url = (target or Target()).find().settings.database or settings_from_environment().get("database")
    if not url:
        raise UsageError(f"this Oxpull names no database; give --database URL, or set {DATABASE_VARIABLE}")
    print(schema_script(url, lean=lean))
