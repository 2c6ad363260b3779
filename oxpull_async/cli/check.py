"""``check``: what is set up in a way that will disappoint."""

from __future__ import annotations

from oxpull_async.cli.options import Flag, Where
from oxpull_async.cli.output import show_json
from oxpull_async.cli.target import Target


async def check(*, target: Where = None, json: Flag = False) -> int:
    """Look for what will disappoint: missing tables, unknown task paths, schedules, batches without a reconciler.

    Exits with 1 if there is an error among the findings.

    Parameters
    ----------
    json
        Print JSON: a list of findings.
    """
    async with (target or Target()).find() as ox:
        findings = await ox.check()
    if json:
        show_json([finding.model_dump() for finding in findings])
    for finding in () if json else findings:
        print(f"{finding.level}: {finding.message}\n    {finding.hint}")
    if not findings and not json:
        print("Nothing found.")
    return 1 if any(finding.level == "error" for finding in findings) else 0
