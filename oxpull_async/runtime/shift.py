"""One run of a worker: its services put together, and their orderly end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

import anyio

from oxpull_async.core.leases import renewal_interval
from oxpull_async.exceptions import OxpullError
from oxpull_async.runtime.attempts import Attempts
from oxpull_async.runtime.claimer import Claimer, Terms
from oxpull_async.runtime.execution import Execution
from oxpull_async.runtime.executor import Executor, OnFailure
from oxpull_async.runtime.heartbeat import Heartbeat
from oxpull_async.runtime.host import Host
from oxpull_async.runtime.reaper import Reaper
from oxpull_async.runtime.reports import Reports
from oxpull_async.runtime.service import Service
from oxpull_async.runtime.settler import Settler
from oxpull_async.runtime.supervisor import Supervisor
from oxpull_async.runtime.verdicts import Judge
from oxpull_async.telemetry import log
