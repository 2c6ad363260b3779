-- fragment: task_row
-- A task row as the library reads it. JSON comes as text from every driver of the family.
task.id, task.task_path, task.args, task.kwargs, task.queue_name, task.priority,
task.takes_context, task.backend_name, task.status, task.run_after, task.attempts, task.max_attempts,
task.return_value, task.errors, task.worker_ids, task.enqueued_at, task.started_at,
task.last_attempted_at, task.finished_at, task.locked_by, task.locked_at, task.lease_expires_at,
task.lease_epoch

-- fragment: is_open
-- A queue that neither this claim passes over nor anybody has paused, and without a limit, unless it's the one of
-- which so much may run; byte by byte, for collations differ. A list without members is that of NULL alone, which
-- nothing is known to be in.
NOT COALESCE(CAST(CONVERT(queue_name USING utf8mb4) AS BINARY) IN :passed_queues, FALSE)
AND NOT EXISTS (
    SELECT 1 FROM oxpull_async_paused_queue AS paused
    WHERE paused.queue_name = CAST(CONVERT(django_ox_oxtask.queue_name USING utf8mb4) AS BINARY)
)
AND NOT EXISTS (
    SELECT 1 FROM oxpull_async_queue_limit AS limited
    WHERE limited.queue_name = CAST(CONVERT(django_ox_oxtask.queue_name USING utf8mb4) AS BINARY)
        AND limited.queue_name <> CAST(CONVERT(:limited_queue USING utf8mb4) AS BINARY)
)

-- fragment: granted
-- What a worker needs to know of a row that is its own.
id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, attempts, max_attempts, errors,
worker_ids, lease_epoch, enqueued_at, lease_expires_at, run_after, started_at, last_attempted_at

-- fragment: begin_attempt
-- Status, lease, epoch and attempt move together, by the database's clock, which stands still within a statement.
status = 'RUNNING', attempts = attempts + 1, lease_epoch = lease_epoch + 1, locked_by = :worker_id,
locked_at = UTC_TIMESTAMP(6), last_attempted_at = UTC_TIMESTAMP(6),
lease_expires_at = TIMESTAMPADD(MICROSECOND, :lease_microseconds, UTC_TIMESTAMP(6)),
started_at = COALESCE(started_at, UTC_TIMESTAMP(6)),
worker_ids = JSON_ARRAY_APPEND(worker_ids, '$', :worker_id)

-- fragment: is_of_path
-- READY rows of one path: with several the server would sort, and lock, every row of all of them. The index compares
-- without regard to case or trailing spaces where the column's collation does, so paths are compared again, byte by
-- byte.
status = 'READY' AND task_path = :task_path AND CAST(CONVERT(task_path USING utf8mb4) AS BINARY) = :task_path

-- fragment: is_in_queue
-- Byte by byte, too.
(:any_queue OR CAST(CONVERT(queue_name USING utf8mb4) AS BINARY) IN :queues)

-- fragment: is_ours
-- READY rows of one path and of a worker's queues, in open queues.
{{is_of_path}} AND {{is_in_queue}} AND {{is_open}}
