"""How often a worker renews its leases, and looks for those that ran out."""

from __future__ import annotations

import pytest

from oxpull_async.core.leases import reap_interval, renewal_interval


@pytest.mark.parametrize(
    ("lease", "renewal", "reaping"),
    [(300, 100, 30), (6, 2, 3), (1, 1 / 3, 1), (0.1, 0.1, 1)],
)
def test_both_intervals_follow_the_lease(lease: float, renewal: float, reaping: float):
    assert renewal_interval(lease) == pytest.approx(renewal)
    assert reap_interval(lease) == reaping
