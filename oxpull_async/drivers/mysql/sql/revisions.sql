-- fragment: rerun_row
-- A rerun as the library reads it.
rerun.`key`, rerun.holder_id, rerun.task_id, rerun.task_path, rerun.args, rerun.kwargs, rerun.queue_name,
rerun.priority, rerun.takes_context, rerun.backend_name, rerun.run_after, rerun.max_attempts, rerun.enqueued_at

-- name: lock_ready
-- A row that is READY at the epoch at which it was seen, so that it has been waiting all the time since.
SELECT {{task_row}} FROM django_ox_oxtask AS task FORCE INDEX (PRIMARY)
WHERE task.id = :id AND task.lease_epoch = :lease_epoch AND task.status = 'READY' FOR UPDATE

-- name: move_task
-- Under the row lock of lock_ready.
UPDATE django_ox_oxtask SET run_after = :run_after WHERE id = :id

-- name: replace_arguments
-- Under the row lock of lock_ready.
UPDATE django_ox_oxtask SET args = :args, kwargs = :kwargs WHERE id = :id

-- name: put_rerun
-- The latest one stays. How many rows it counts isn't asked, for that lies.
INSERT INTO oxpull_async_rerun (
    `key`, holder_id, task_id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, run_after,
    max_attempts, enqueued_at
) VALUES (
    :key, :holder_id, :id, :task_path, :args, :kwargs, :queue_name, :priority, :takes_context, :backend_name,
    :run_after, :max_attempts, :enqueued_at
)
ON DUPLICATE KEY UPDATE
    holder_id = :holder_id, task_id = :id, task_path = :task_path, args = :args, kwargs = :kwargs,
    queue_name = :queue_name, priority = :priority, takes_context = :takes_context, backend_name = :backend_name,
    run_after = :run_after, max_attempts = :max_attempts, enqueued_at = :enqueued_at

-- name: find_reruns
-- Asked before they are deleted: to delete what isn't there would lock the gap where it might be.
SELECT `key` FROM oxpull_async_rerun WHERE `key` IN :keys

-- name: lock_reruns
-- One that is just being started, or written, is left: who starts it waits for the key's lock row, which we may have
-- locked, and then sees that it has come too late.
SELECT `key` FROM oxpull_async_rerun WHERE `key` IN :keys ORDER BY `key` FOR UPDATE SKIP LOCKED

-- name: drop_reruns
-- By primary key.
DELETE FROM oxpull_async_rerun WHERE `key` IN :keys

-- name: read_rerun
-- By primary key.
SELECT {{rerun_row}} FROM oxpull_async_rerun AS rerun WHERE rerun.`key` = :key

-- name: lock_rerun
-- One that somebody else is writing, or starting, is left to them.
SELECT {{rerun_row}} FROM oxpull_async_rerun AS rerun WHERE rerun.`key` = :key FOR UPDATE SKIP LOCKED

-- name: lock_reruns_of
-- What waits for these tasks, in key order. One in a transaction that somebody keeps open mustn't keep outcomes waiting.
SELECT {{rerun_row}} FROM oxpull_async_rerun AS rerun FORCE INDEX (oxpull_async_rerun_holder_idx)
WHERE rerun.holder_id IN :ids ORDER BY rerun.`key` FOR UPDATE SKIP LOCKED

-- name: due_reruns
-- Those whose task has ended, wherever and however it has.
SELECT rerun.`key`
FROM oxpull_async_rerun AS rerun
LEFT JOIN django_ox_oxtask AS task ON task.id = rerun.holder_id
WHERE task.id IS NULL OR task.status NOT IN ('READY', 'RUNNING')
ORDER BY rerun.`key` LIMIT :limit
