"""Runs attempts, each in an asyncio task of its own, and sees that their outcomes are written.

They aren't children of a task group: its cancel is delivered again at every
await, so that a task could not clean up after itself, and it waits for ever
for a child that ignores it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from oxpull_async.core.statuses import TaskStatus
from oxpull_async.exceptions import StoreError, TaskTimeout
from oxpull_async.ports import Claim, Outcome
from oxpull_async.runtime.attempts import Attempt, Attempts, Interruption
from oxpull_async.runtime.execution import Execution
from oxpull_async.runtime.reports import Reports
from oxpull_async.runtime.settler import Settler
from oxpull_async.runtime.timekeeper import Timekeeper, forget
from oxpull_async.runtime.verdicts import Judge
from oxpull_async.telemetry import log

OnFailure: TypeAlias = Callable[[BaseException], None]


class Executor:
    """Starts attempts while places are free; each ends by itself, with an outcome to be written or none.

    A fast task costs little more than its asyncio task: once its code has
    ended, nothing is awaited any more.
    """

    def __init__(
        self,
        attempts: Attempts,
        execution: Execution,
        judge: Judge,
        settler: Settler,
        reports: Reports,
        grace: float,
        on_failure: OnFailure | None = None,
    ) -> None:
        self.ran: int = 0
        """How many attempts came to an outcome."""
        self.stuck: asyncio.Event = asyncio.Event()
        """Set once a thread has outlived its time limit and its grace."""
        self._attempts = attempts
        self._execution = execution
        self._judge = judge
        self._settler = settler
        self._reports = reports
        self._timekeeper = Timekeeper(grace, self.take_away)
        self._on_failure = on_failure
        self._is_closed = False
        self._unrun: list[Claim] = []
        settler.tell(self)

    def admit(self, claims: list[Claim], held_until: float = math.inf) -> None:
        """Begin these attempts, each as soon as there is a place; once closed, keep them to be handed back.

        ``held_until``: the ``time.monotonic`` at which their leases are over, unless they're renewed.
        """
        if self._is_closed:
            self._unrun += claims
            return
        self._attempts.wait_for_place(claims, held_until)
        self._begin()

    def close(self) -> None:
        """Start nothing more, and cancel what runs."""
        self._is_closed = True
        self._unrun += self._attempts.take_waiting()
        for attempt in self._attempts.present:
            attempt.interrupt(Interruption.SHUTDOWN)

    def take_unrun(self) -> list[Claim]:
        """Claims to be handed back: nothing of them runs, and none has come to an outcome."""
        unrun, self._unrun = self._unrun, []
        return [*unrun, *self._attempts.take_waiting()]

    def keep_unrun(self, claims: list[Claim]) -> None:
        """They couldn't be handed back just now."""
        self._unrun += claims

    def take_away_late(self) -> None:
        """Take the rows from those that are beyond their time limit, and in their grace."""
        for attempt in self._attempts.present:
            if attempt.interrupted is Interruption.TIMEOUT:
                self.take_away(attempt)

    def take_away(self, attempt: Attempt) -> None:
        """The attempt doesn't end: it has failed, its place is free, and the row's epoch moves on."""
        if not attempt.is_running:
            return
        error = TaskTimeout(self._execution.plan(attempt.claim.task_path).timeout or 0.0)
        log(
            logging.ERROR,
            "task_taken_away",
            f"{_words(attempt.claim)} is beyond its timeout and doesn't end; its row is taken away from it",
            **_fields(attempt.claim),
        )
        if attempt.runner is not None:
            attempt.runner.cancel()
        if attempt.thread is not None and not attempt.thread.revoke():
            self._execution.spare_thread()
            self.stuck.set()
        self._conclude(attempt, self._judge.taken_away(attempt.claim, error), error)
        self._execution.abandon(attempt)

    # What became of outcomes: see ``settler.Recipient``.

    def landed(self, attempts: Sequence[Attempt]) -> None:
        """Forget them, and tell of them."""
        settled: list[tuple[Claim, Outcome]] = []
        for attempt in attempts:
            self._attempts.remove(attempt)
            outcome = attempt.outcome
            assert outcome is not None
            if attempt.error is not None:
                self._note_failure(attempt.claim, outcome, attempt.error)
            if outcome.settlement.finishes:
                settled.append((attempt.claim, outcome))
        if settled:
            self._reports.finished(settled)

    def dropped(self, attempts: Sequence[Attempt]) -> None:
        """Forget them."""
        for attempt in attempts:
            self._attempts.remove(attempt, is_written=False)
            self._execution.abandon(attempt)

    def refused(self, attempt: Attempt, error: StoreError) -> None:
        """What the task returned can't be stored: the attempt has failed. If not even that can, give up."""
        if attempt.error is None:
            self._settle(attempt, self._judge.failure(attempt.claim, error), error)
            return
        log(
            logging.ERROR,
            "task_outcome_unrecorded",
            f"{_words(attempt.claim)} ended, but its outcome couldn't be written: {error}",
            error=error,
            **_fields(attempt.claim),
        )
        self.dropped([attempt])

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        while (attempt := self._attempts.begin_next()) is not None:
            attempt.runner = loop.create_task(self._carry_out(attempt), name=attempt.claim.task_path)

    async def _carry_out(self, attempt: Attempt) -> None:
        claim = attempt.claim
        try:
            if self._reports.wants_started:
                await self._reports.started(claim)
            if attempt.held_until < time.monotonic():
                attempt.interrupt(Interruption.LEASE_LOST)  # this process stood still meanwhile
            if attempt.interrupted is not None:
                raise asyncio.CancelledError
            attempt.has_begun = True
            plan = self._execution.plan(claim.task_path)
            if plan.timeout is not None:
                self._timekeeper.watch(attempt, plan.timeout)
            value = await self._execution.call(attempt, plan)
        except GeneratorExit:
            raise  # the event loop is gone
        except BaseException as error:  # not even a task's SystemExit may end its worker
            self._fail(attempt, error)
        else:
            self._conclude(attempt, self._judge.success(claim, value))

    def _fail(self, attempt: Attempt, error: BaseException) -> None:
        try:
            self._judge_failure(attempt, error)
        except Exception as defect:  # of ours; the lease will run out
            log(
                logging.ERROR,
                "task_outcome_unrecorded",
                f"{_words(attempt.claim)} ended, but its outcome couldn't be made: {defect}",
                error=defect,
                **_fields(attempt.claim),
            )
            self.dropped([attempt])

    def _judge_failure(self, attempt: Attempt, error: BaseException) -> None:
        """After a cancel of ours, whatever is raised is its consequence: some drivers answer with an own error."""
        reason = _reason(attempt, error)
        if reason in (Interruption.SHUTDOWN, Interruption.LEASE_LOST):
            self._give_up(attempt, reason)
            return
        if reason is Interruption.TIMEOUT:
            late = TaskTimeout(self._execution.plan(attempt.claim.task_path).timeout or 0.0)
            late.__cause__, error = error, late
        self._conclude(attempt, self._judge.failure(attempt.claim, error), error)

    def _conclude(self, attempt: Attempt, outcome: Outcome, error: BaseException | None = None) -> None:
        if not attempt.is_running:
            return  # taken away meanwhile
        forget(attempt)
        self.ran += 1
        self._attempts.end(attempt)
        self._settle(attempt, outcome, error)
        self._begin()

    def _settle(self, attempt: Attempt, outcome: Outcome, error: BaseException | None) -> None:
        attempt.outcome, attempt.error, attempt.settle_until = outcome, error, None
        self._settler.put(attempt)

    def _give_up(self, attempt: Attempt, reason: Interruption) -> None:
        forget(attempt)
        self._attempts.end(attempt)
        if not attempt.has_begun and reason is Interruption.LEASE_LOST:
            log(
                logging.WARNING,
                "task_lease_lost",
                f"{_words(attempt.claim)} has lost its lease before it began",
                lease_epoch=attempt.claim.lease_epoch,
                **_fields(attempt.claim),
            )
        if reason is Interruption.SHUTDOWN and attempt.is_over:
            self._unrun.append(attempt.claim)
        else:
            self._execution.abandon(attempt)
        if reason is Interruption.SHUTDOWN and not attempt.is_over:
            mention_left_running(attempt)
        self._attempts.remove(attempt, is_written=False)
        self._begin()

    def _note_failure(self, claim: Claim, outcome: Outcome, error: BaseException) -> None:
        _log_failure(claim, outcome, error)
        if self._on_failure is not None and not outcome.settlement.refunds:
            self._on_failure(error)


def mention_left_running(attempt: Attempt) -> None:
    """Tell of an attempt that a shutdown couldn't end."""
    log(
        logging.WARNING,
        "task_left_running",
        f"{_words(attempt.claim)} didn't end in time; its lease will run out",
        **_fields(attempt.claim),
    )


def _reason(attempt: Attempt, error: BaseException) -> Interruption | None:
    """Why our cancel ended the code; anybody else's cancel of the runner counts as a shutdown."""
    if attempt.interrupted is None and isinstance(error, asyncio.CancelledError):
        runner = asyncio.current_task()
        if runner is not None and runner.cancelling():
            attempt.interrupted = Interruption.SHUTDOWN
    return attempt.interrupted


def _log_failure(claim: Claim, outcome: Outcome, error: BaseException) -> None:
    settlement = outcome.settlement
    if settlement.refunds:
        level, event, words = logging.INFO, "task_snoozed", "wants to run later"
    elif settlement.status is TaskStatus.DISCARDED:
        level, event, words = logging.WARNING, "task_discarded", "gave itself up"
    elif settlement.finishes:
        level, event, words = logging.ERROR, "task_failed", "failed for good"
    else:
        level, event, words = logging.WARNING, "task_retried", "failed, and will be tried again"
    log(
        level,
        event,
        f"{_words(claim)} {words} (attempt {claim.attempts} of {claim.max_attempts}): {type(error).__name__}",
        error=None if settlement.refunds else error,
        **_fields(claim),
    )


def _words(claim: Claim) -> str:
    return f"task {claim.task_path} ({claim.id})"


def _fields(claim: Claim) -> dict[str, Any]:
    return {"task_path": claim.task_path, "task_id": str(claim.id), "attempt": claim.attempts}
