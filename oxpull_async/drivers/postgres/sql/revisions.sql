-- fragment: rerun_row
-- A rerun as the library reads it.
rerun.key, rerun.holder_id, rerun.task_id, rerun.task_path, rerun.args::text, rerun.kwargs::text, rerun.queue_name,
rerun.priority, rerun.takes_context, rerun.backend_name, rerun.run_after, rerun.max_attempts, rerun.enqueued_at

-- name: move_task
-- Lands only on a row that is READY at the epoch at which it was seen, so that it has been waiting all the time since.
UPDATE django_ox_oxtask AS task SET run_after = :run_after::timestamptz
WHERE task.id = :id::uuid AND task.lease_epoch = :lease_epoch::bigint AND task.status = 'READY'
RETURNING {{task_row}}

-- name: replace_arguments
-- Lands only where move_task would. The key's rerun, if there is one, has nothing left to do: this row's run will have
-- the newer arguments.
WITH replaced AS (
    UPDATE django_ox_oxtask AS task SET args = :args::text::jsonb, kwargs = :kwargs::text::jsonb
    WHERE task.id = :id::uuid AND task.lease_epoch = :lease_epoch::bigint AND task.status = 'READY'
    RETURNING {{task_row}}
), dropped AS (
    DELETE FROM oxpull_async_rerun AS rerun USING replaced WHERE rerun.key = :key::varchar
)
SELECT * FROM replaced

-- name: put_rerun
-- The latest one stays.
INSERT INTO oxpull_async_rerun (
    key, holder_id, task_id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, run_after,
    max_attempts, enqueued_at
) VALUES (
    :key::varchar, :holder_id::uuid, :id::uuid, :task_path::varchar, :args::text::jsonb, :kwargs::text::jsonb,
    :queue_name::varchar, :priority::smallint, :takes_context::boolean, :backend_name::varchar,
    :run_after::timestamptz, :max_attempts::smallint, :enqueued_at::timestamptz
)
ON CONFLICT (key) DO UPDATE SET
    holder_id = excluded.holder_id, task_id = excluded.task_id, task_path = excluded.task_path, args = excluded.args,
    kwargs = excluded.kwargs, queue_name = excluded.queue_name, priority = excluded.priority,
    takes_context = excluded.takes_context, backend_name = excluded.backend_name, run_after = excluded.run_after,
    max_attempts = excluded.max_attempts, enqueued_at = excluded.enqueued_at

-- name: drop_reruns
-- By primary key. One that is just being started, or written, is left: who starts it waits for the key's lock row, which
-- we may have locked, and then sees that it has come too late.
DELETE FROM oxpull_async_rerun WHERE key = ANY(ARRAY(
    SELECT key FROM oxpull_async_rerun WHERE key = ANY(:keys::varchar[]) ORDER BY key FOR UPDATE SKIP LOCKED
))

-- name: read_rerun
-- By primary key.
SELECT {{rerun_row}} FROM oxpull_async_rerun AS rerun WHERE rerun.key = :key::varchar

-- name: lock_rerun
-- One that somebody else is writing, or starting, is left to them.
SELECT {{rerun_row}} FROM oxpull_async_rerun AS rerun WHERE rerun.key = :key::varchar FOR UPDATE SKIP LOCKED

-- name: lock_reruns_of
-- What waits for these tasks, in key order. One in a transaction that somebody keeps open mustn't keep outcomes waiting.
SELECT {{rerun_row}} FROM oxpull_async_rerun AS rerun
WHERE rerun.holder_id = ANY(:ids::uuid[]) ORDER BY rerun.key FOR UPDATE SKIP LOCKED

-- name: due_reruns
-- Those whose task has ended, wherever and however it has.
SELECT rerun.key
FROM oxpull_async_rerun AS rerun
LEFT JOIN django_ox_oxtask AS task ON task.id = rerun.holder_id
WHERE task.id IS NULL OR task.status NOT IN ('READY', 'RUNNING')
ORDER BY rerun.key LIMIT :limit::int
