-- fragment: rerun_row
-- A rerun as the library reads it.
rerun.key, rerun.holder_id, rerun.task_id, rerun.task_path, rerun.args, rerun.kwargs, rerun.queue_name,
rerun.priority, rerun.takes_context, rerun.backend_name, rerun.run_after, rerun.max_attempts, rerun.enqueued_at

-- name: move_task
-- Lands only on a row that is READY at the epoch at which it was seen, so that it has been waiting all the time since.
-- The plus sign keeps the planner from walking the index of READY rows.
UPDATE django_ox_oxtask SET run_after = :run_after
WHERE id = :id AND lease_epoch = :lease_epoch AND +status = 'READY'

-- name: replace_arguments
-- Lands only where move_task would.
UPDATE django_ox_oxtask SET args = :args, kwargs = :kwargs
WHERE id = :id AND lease_epoch = :lease_epoch AND +status = 'READY'

-- name: put_rerun
-- The latest one stays.
INSERT INTO oxpull_async_rerun (
    key, holder_id, task_id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, run_after,
    max_attempts, enqueued_at
) VALUES (
    :key, :holder_id, :id, :task_path, :args, :kwargs, :queue_name, :priority, :takes_context, :backend_name,
    :run_after, :max_attempts, :enqueued_at
)
ON CONFLICT (key) DO UPDATE SET
    holder_id = excluded.holder_id, task_id = excluded.task_id, task_path = excluded.task_path, args = excluded.args,
    kwargs = excluded.kwargs, queue_name = excluded.queue_name, priority = excluded.priority,
    takes_context = excluded.takes_context, backend_name = excluded.backend_name, run_after = excluded.run_after,
    max_attempts = excluded.max_attempts, enqueued_at = excluded.enqueued_at

-- name: drop_reruns
-- By primary key.
DELETE FROM oxpull_async_rerun WHERE key IN (SELECT value FROM json_each(:keys))

-- name: read_rerun
-- By primary key. Who holds the file's write lock needs no other.
SELECT {{rerun_row}} FROM oxpull_async_rerun AS rerun WHERE rerun.key = :key

-- name: read_reruns_of
-- What waits for these tasks.
SELECT {{rerun_row}} FROM oxpull_async_rerun AS rerun
WHERE rerun.holder_id IN (SELECT value FROM json_each(:ids)) ORDER BY rerun.key

-- name: due_reruns
-- Those whose task has ended, wherever and however it has.
SELECT rerun.key
FROM oxpull_async_rerun AS rerun
LEFT JOIN django_ox_oxtask AS task ON task.id = rerun.holder_id
WHERE task.id IS NULL OR task.status NOT IN ('READY', 'RUNNING')
ORDER BY rerun.key LIMIT :limit
