"""How long a failed attempt waits before the next one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from oxpull_async.core.durations import Duration, seconds

MAX_DELAY_SECONDS = 31_557_600_000.0
"""A thousand years; beyond it an instant may leave what a database's calendar can hold."""

_MAX_DOUBLINGS = 64


def default_backoff(attempts: int, initial: float = 5.0, maximum: float = 600.0) -> float:
    """Seconds to wait after the given number of attempts: doubling from ``initial`` up to ``maximum``."""
    doublings = max(0, min(attempts - 1, _MAX_DOUBLINGS))
    return float(min(initial * 2**doublings, maximum))


@dataclass(frozen=True, init=False, slots=True)
class Backoff:
    """A doubling backoff without jitter. Both bounds are kept in seconds."""

    initial: float
    maximum: float

    def __init__(self, initial: Duration = 5.0, maximum: Duration = 600.0) -> None:
        object.__setattr__(self, "initial", _bounded(initial, "backoff's initial delay"))
        object.__setattr__(self, "maximum", _bounded(maximum, "backoff's maximum delay"))

    def delay_after(self, attempts: int) -> float:
        """Seconds to wait after the given number of attempts."""
        return default_backoff(attempts, self.initial, self.maximum)


def _bounded(value: Duration, name: str) -> float:
    number = seconds(value, name)
    if number > MAX_DELAY_SECONDS:
        raise ValueError(f"{name} must be at most {MAX_DELAY_SECONDS:.0f} seconds, not {number:g}")
    return number


class DelaySource(StrEnum):
    """Whose word a delay is."""

    DEFAULT = "default"
    TASK = "task"
    DECLINED = "backoff_declined"
    POLICY_ERROR = "task_policy_error"


@dataclass(frozen=True, slots=True)
class Delay:
    """How long to wait for the next attempt; no ``seconds`` means no next attempt.

    ``complaint`` says what was wrong with the task's own answer when the default stands in for it.
    """

    seconds: float | None
    source: DelaySource
    complaint: str = ""


def default_delay(attempts: int, backoff: Backoff) -> Delay:
    """The delay of a task that has no backoff of its own."""
    return Delay(backoff.delay_after(attempts), DelaySource.DEFAULT)


def decide_delay(answer: object, attempts: int, backoff: Backoff) -> Delay:
    """The delay that a task's own backoff answered with: seconds, a timedelta, or None to fail now.

    An answer that can't be used is replaced by the default and complained about, never raised.
    """
    if answer is None:
        return Delay(None, DelaySource.DECLINED)
    if not isinstance(answer, int | float | timedelta):
        return refuse_answer(f"backoff answered with {_a(answer)}", attempts, backoff)
    try:
        return Delay(_bounded(answer, "backoff's answer"), DelaySource.TASK)
    except (TypeError, ValueError) as error:
        return refuse_answer(str(error), attempts, backoff)


def refuse_answer(complaint: str, attempts: int, backoff: Backoff) -> Delay:
    """The default delay in place of a backoff that raised or answered nonsense."""
    return Delay(backoff.delay_after(attempts), DelaySource.POLICY_ERROR, complaint)


def _a(value: object) -> str:
    return f"a value of type {type(value).__qualname__}, not with seconds, a timedelta or None"
