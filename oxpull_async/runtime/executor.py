"""Runs attempts, each in an asyncio task of its own, and sees that their outcomes are written.

They aren't children of a task group: its cancel is delivered again at every
await, so that a task could not clean up after itself, and it waits for ever
for a child that ignores it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from oxpull_async.exceptions import StoreError
from oxpull_async.ports import Claim, Outcome
from oxpull_async.runtime.attempts import Attempt, Attempts, Interruption
from oxpull_async.runtime.execution import Execution
from oxpull_async.runtime.reports import Reports
from oxpull_async.runtime.settler import Settler
from oxpull_async.runtime.verdicts import Judge
from oxpull_async.telemetry import log

OnFailure: TypeAlias = Callable[[BaseException], None]


@dataclass(frozen=True, slots=True)
class _Returned:
    value: str | None


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


@dataclass(frozen=True, slots=True)
class _Interrupted:
    pass


class Executor:
    """Starts attempts; each ends by itself, with its outcome written or none."""

    def __init__(
        self,
        attempts: Attempts,
        execution: Execution,
        judge: Judge,
        settler: Settler,
        reports: Reports,
        on_failure: OnFailure | None = None,
    ) -> None:
        self.ran: int = 0
        """How many attempts came to an outcome."""
        self._attempts = attempts
        self._execution = execution
        self._judge = judge
        self._settler = settler
        self._reports = reports
        self._on_failure = on_failure
        self._is_closed = False
        self._unrun: list[Claim] = []

    def start(self, claim: Claim) -> None:
        """Begin the attempt; once closed, keep the claim to be handed back."""
        if self._is_closed:
            self._unrun.append(claim)
            return
        attempt = Attempt(claim)
        self._attempts.add(attempt)
        attempt.runner = asyncio.get_running_loop().create_task(
            self._carry_out(attempt), name=f"{claim.task_path} {claim.id}"
        )

    def close(self) -> None:
        """Start nothing more, and cancel what runs."""
        self._is_closed = True
        for attempt in self._attempts.present:
            attempt.interrupt(Interruption.SHUTDOWN)

    def take_unrun(self) -> list[Claim]:
        """Claims to be handed back: the shutdown has kept them from an outcome, and nothing of them runs."""
        unrun, self._unrun = self._unrun, []
        return unrun

    async def _carry_out(self, attempt: Attempt) -> None:
        try:
            ending = await self._run(attempt)
            self._attempts.end(attempt)
            await self._conclude(attempt, ending)
        except Exception as error:  # a defect of ours; the lease will run out
            log(
                logging.ERROR,
                "task_outcome_unrecorded",
                f"{_words(attempt.claim)} ended, but its outcome couldn't be written: {error}",
                error=error,
                **_fields(attempt.claim),
            )
        finally:
            self._attempts.remove(attempt)

    async def _run(self, attempt: Attempt) -> _Returned | _Raised | _Interrupted:
        try:
            await self._reports.started(attempt.claim)
            return _Returned(await self._execution.run(attempt))
        except GeneratorExit:
            raise  # the event loop is gone
        except BaseException as error:  # not even a task's SystemExit may end its worker
            return _Interrupted() if _is_interrupted(attempt, error) else _Raised(error)

    async def _conclude(self, attempt: Attempt, ending: _Returned | _Raised | _Interrupted) -> None:
        claim = attempt.claim
        match ending:
            case _Interrupted():
                self._give_up(attempt)
            case _Returned(value):
                self.ran += 1
                await self._settle(claim, self._judge.success(claim, value))
            case _Raised(error):
                self.ran += 1
                await self._fail(claim, error)

    def _give_up(self, attempt: Attempt) -> None:
        if attempt.interrupted is not Interruption.SHUTDOWN:
            return
        if attempt.is_over:
            self._unrun.append(attempt.claim)
        else:
            mention_left_running(attempt)

    async def _settle(self, claim: Claim, outcome: Outcome) -> None:
        try:
            landed = await self._settler.settle(outcome)
        except StoreError as error:
            await self._fail(claim, error)  # the database can't store what the task returned
            return
        if landed:
            await self._reports.finished(outcome)

    async def _fail(self, claim: Claim, error: BaseException) -> None:
        outcome = await self._judge.failure(claim, error)
        landed = await self._settler.settle(outcome)
        if landed:
            _log_failure(claim, outcome, error)
            if self._on_failure is not None:
                self._on_failure(error)
            if outcome.settlement.finishes:
                await self._reports.finished(outcome)


def mention_left_running(attempt: Attempt) -> None:
    """Tell of an attempt that a shutdown couldn't end."""
    log(
        logging.WARNING,
        "task_left_running",
        f"{_words(attempt.claim)} didn't end in time; its lease will run out",
        **_fields(attempt.claim),
    )


def _is_interrupted(attempt: Attempt, error: BaseException) -> bool:
    """Whether our cancel ended the code, or anybody else's cancel of the runner.

    After our own cancel, whatever is raised counts as its consequence: some
    drivers answer a cancel with an error of their own.
    """
    if attempt.interrupted is None and isinstance(error, asyncio.CancelledError):
        runner = asyncio.current_task()
        if runner is not None and runner.cancelling():
            attempt.interrupted = Interruption.SHUTDOWN
    return attempt.interrupted is not None


def _log_failure(claim: Claim, outcome: Outcome, error: BaseException) -> None:
    if outcome.settlement.finishes:
        level, event, words = logging.ERROR, "task_failed", "failed for good"
    else:
        level, event, words = logging.WARNING, "task_retried", "failed, and will be tried again"
    log(
        level,
        event,
        f"{_words(claim)} {words} (attempt {claim.attempts} of {claim.max_attempts}): {type(error).__name__}",
        error=error,
        **_fields(claim),
    )


def _words(claim: Claim) -> str:
    return f"task {claim.task_path} ({claim.id})"


def _fields(claim: Claim) -> dict[str, Any]:
    return {"task_path": claim.task_path, "task_id": str(claim.id), "attempt": claim.attempts}
