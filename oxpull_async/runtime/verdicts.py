"""What an attempt comes to: from what the task's code returned or raised to the outcome to be written."""

from __future__ import annotations

import inspect
import json
import logging
from datetime import timedelta
from typing import Any

from oxpull_async.core.backoff import Delay, decide_delay, default_delay, refuse_answer
from oxpull_async.core.failures import ErrorRecord, error_record
from oxpull_async.core.settlements import Settlement, decide_failure, may_retry
from oxpull_async.exceptions import Discard, Retry, Snooze
from oxpull_async.ports import Claim, Outcome
from oxpull_async.runtime.host import Host
from oxpull_async.runtime.reports import Reports
from oxpull_async.telemetry import log


class Judge:
    """Makes outcomes. The budget is the row's own, the backoff the task's or else the settings'."""

    def __init__(self, host: Host, reports: Reports) -> None:
        self._host = host
        self._reports = reports

    def success(self, claim: Claim, return_value: str | None) -> Outcome:
        """The attempt returned this JSON text."""
        now = self._host.clock.now()
        settlement, rerun = Settlement.success(return_value), self._may_rerun(claim.task_path)
        return Outcome(claim.id, claim.lease_epoch, settlement, claim.errors, None, now, may_rerun=rerun)

    def failure(self, claim: Claim, error: BaseException) -> Outcome:
        """The attempt raised: it's tried again later if the row's budget and the backoff allow it."""
        if isinstance(error, Snooze):
            delay = decide_delay(error.after, claim.attempts, self._host.settings.backoff)
            return self._outcome(claim, Settlement.snooze(_seconds(self._heard(claim, delay))), claim.errors)
        record = error_record(error)
        errors = _with(claim, record)
        if isinstance(error, Discard):
            return self._outcome(claim, Settlement.discard(record), errors)
        wait = None
        if may_retry(claim.attempts, claim.max_attempts):
            failed = self._outcome(claim, Settlement.failure(record), errors)
            wait = self._heard(claim, self._decide_delay(claim, error, failed)).seconds
        return self._outcome(claim, _decide(claim, record, wait), errors)

    def taken_away(self, claim: Claim, error: BaseException) -> Outcome:
        """The attempt can't be ended: it has failed, and the row is taken away from it. No foreign code is asked."""
        record = error_record(error)
        delay = self._host.settings.backoff.delay_after(claim.attempts)
        return self._outcome(claim, _decide(claim, record, delay), _with(claim, record), takes_row_away=True)

    def _decide_delay(self, claim: Claim, error: BaseException, failed: Outcome) -> Delay:
        attempts, default = claim.attempts, self._host.settings.backoff
        if isinstance(error, Retry) and error.after is not None:
            return decide_delay(error.after, attempts, default)
        task = self._host.tasks.get(claim.task_path)
        backoff = None if task is None else task.options.backoff
        if backoff is None:
            return default_delay(attempts, default)
        if not callable(backoff):
            return decide_delay(backoff, attempts, default)
        try:
            answer = backoff(error, self._reports.as_settled(claim, failed))
        except Exception as problem:  # foreign code, and its failure isn't the task's
            return refuse_answer(f"backoff raised {type(problem).__qualname__}", attempts, default)
        return decide_delay(_without_coroutine(answer), attempts, default)

    def _heard(self, claim: Claim, delay: Delay) -> Delay:
        if delay.complaint:
            log(
                logging.WARNING,
                "task_policy_error",
                f"{claim.task_path}: {delay.complaint}; the default backoff stands in",
                task_path=claim.task_path,
                task_id=str(claim.id),
            )
        return delay

    def _outcome(self, claim: Claim, settlement: Settlement, errors: str, *, takes_row_away: bool = False) -> Outcome:
        now = self._host.clock.now()
        delay = settlement.delay_seconds
        return Outcome(
            id=claim.id,
            lease_epoch=claim.lease_epoch,
            settlement=settlement,
            errors=errors,
            run_after=None if delay is None else now + timedelta(seconds=delay),
            finished_at=now,
            takes_row_away=takes_row_away,
            may_rerun=settlement.finishes and self._may_rerun(claim.task_path),
        )

    def _may_rerun(self, task_path: str) -> bool:
        task = self._host.tasks.get(task_path)
        unique = None if task is None else task.options.unique
        return unique is not None and unique.on_duplicate == "rerun"


def _seconds(delay: Delay) -> float:
    return delay.seconds or 0.0


def _with(claim: Claim, record: ErrorRecord) -> str:
    return json.dumps([*json.loads(claim.errors), record])


def _decide(claim: Claim, record: ErrorRecord, delay: float | None) -> Settlement:
    return decide_failure(record, attempts=claim.attempts, max_attempts=claim.max_attempts, delay_seconds=delay)


def _without_coroutine(answer: Any) -> Any:
    """A coroutine is no answer; closed, so that nobody is told that it was never awaited."""
    if inspect.iscoroutine(answer):
        answer.close()
    return answer
