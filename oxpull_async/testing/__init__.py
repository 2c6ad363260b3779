"""For the tests of applications: tasks run at once or on demand, rows to assert on, time to travel in.

With pytest the fixtures ``oxpull`` and ``oxpull_inline`` are there without an import; everything here works
without pytest too.
"""

from oxpull_async.testing.enqueued import all_enqueued, assert_enqueued, refute_enqueued
from oxpull_async.testing.inlining import inline
from oxpull_async.testing.overriding import override
from oxpull_async.testing.travelling import TimeMachine, freeze, travel

__all__ = [
    "TimeMachine",
    "all_enqueued",
    "assert_enqueued",
    "freeze",
    "inline",
    "override",
    "refute_enqueued",
    "travel",
]
