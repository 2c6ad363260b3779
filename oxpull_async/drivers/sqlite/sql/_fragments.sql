-- fragment: task_row
-- A task row as the library reads it.
task.id, task.task_path, task.args, task.kwargs, task.queue_name, task.priority,
task.takes_context, task.backend_name, task.status, task.run_after, task.attempts, task.max_attempts,
task.return_value, task.errors, task.worker_ids, task.enqueued_at, task.started_at,
task.last_attempted_at, task.finished_at, task.locked_by, task.locked_at, task.lease_expires_at,
task.lease_epoch

-- fragment: database_now
-- The host's clock, one for all processes of the file, and one instant per statement however often it's asked.
-- Written as Django writes it: instants are compared as text.
(strftime('%Y-%m-%d %H:%M:%f', 'now') || '000')

-- fragment: lease_end
-- The same instant and a lease's length, a modifier such as '+300.000 seconds'.
(strftime('%Y-%m-%d %H:%M:%f', 'now', :lease) || '000')

-- fragment: lease_ago
-- The instant at which a lease that ends now was taken.
(strftime('%Y-%m-%d %H:%M:%f', 'now', :lease_ago) || '000')

-- fragment: is_granted
-- Rows by (id, epoch) pairs, each found by its primary key: the plus signs keep the planner from walking the
-- index of a status instead, since without statistics it takes any status for a rare one.
task.id = json_extract(granted.value, '$[0]') AND +task.lease_epoch = json_extract(granted.value, '$[1]')

-- fragment: is_open
-- A queue that neither this claim passes over nor anybody has paused, and without a limit, unless it's the one of
-- which so much may run.
queue_name NOT IN (SELECT value FROM json_each(:passed_queues))
AND queue_name NOT IN (SELECT queue_name FROM oxpull_async_paused_queue)
AND queue_name NOT IN (SELECT queue_name FROM oxpull_async_queue_limit WHERE queue_name <> :limited_queue)

-- fragment: granted
-- What a worker needs to know of a row that is its own.
id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, attempts, max_attempts, errors,
worker_ids, lease_epoch, enqueued_at, lease_expires_at, run_after, started_at, last_attempted_at

-- fragment: begin_attempt
-- Status, lease, epoch and attempt move together. worker_ids grows as json.dumps would write it, and by json_insert
-- where another writer spaced it differently.
status = 'RUNNING', attempts = attempts + 1, lease_epoch = lease_epoch + 1,
locked_by = :worker_id, locked_at = {{database_now}},
last_attempted_at = {{database_now}},
lease_expires_at = {{lease_end}},
started_at = COALESCE(started_at, {{database_now}}),
worker_ids = CASE
    WHEN worker_ids = '[]' THEN '[' || :worker_json || ']'
    WHEN worker_ids LIKE '["%"]' THEN substr(worker_ids, 1, length(worker_ids) - 1) || ', ' || :worker_json || ']'
    ELSE json_insert(worker_ids, '$[#]', :worker_id)
END

-- fragment: is_ours
-- READY rows of the paths and queues of a worker, in open queues.
status = 'READY' AND task_path IN (SELECT value FROM json_each(:task_paths))
AND (:any_queue OR queue_name IN (SELECT value FROM json_each(:queues))) AND {{is_open}}

-- fragment: is_undeferred
-- By an index that only such rows stand in.
{{is_ours}} AND run_after IS NULL

-- fragment: has_come
-- By indexes that only rows with a run_after stand in.
{{is_ours}} AND run_after <= :now

-- fragment: heads
-- The first rows of all: of those without a run_after, and of those whose run_after has come. The latter are few, and
-- read by that instant: then they are put in order here. Where there are more of them, they are walked in their order,
-- and those that aren't due are passed over; it isn't far then to one that is. A limit of 0, because SQLite would try
-- a condition at each row.
WITH come AS MATERIALIZED (
    SELECT id, priority, enqueued_at FROM django_ox_oxtask INDEXED BY oxpull_async_deferred_idx
    WHERE {{has_come}} LIMIT 1000
)
SELECT * FROM (
    SELECT * FROM (
        SELECT id, priority, enqueued_at FROM django_ox_oxtask INDEXED BY oxpull_async_undeferred_idx
        WHERE {{is_undeferred}} ORDER BY priority DESC, enqueued_at LIMIT :limit
    )
    UNION ALL SELECT * FROM come WHERE (SELECT count(*) FROM come) < 1000
    UNION ALL SELECT * FROM (
        SELECT id, priority, enqueued_at FROM django_ox_oxtask INDEXED BY oxpull_async_deferred_order_idx
        WHERE {{has_come}} ORDER BY priority DESC, enqueued_at LIMIT :limit * ((SELECT count(*) FROM come) = 1000)
    )
)
ORDER BY priority DESC, enqueued_at LIMIT :limit
