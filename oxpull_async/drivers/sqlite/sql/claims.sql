-- name: probe
-- Asked before the file's write lock is taken, so that an idle worker doesn't get in the way of those who write.
SELECT EXISTS (
    SELECT 1 FROM django_ox_oxtask INDEXED BY oxpull_async_undeferred_idx WHERE {{is_undeferred}}
) OR EXISTS (
    SELECT 1 FROM django_ox_oxtask INDEXED BY oxpull_async_deferred_idx WHERE {{has_come}}
)

-- name: find_late_row
-- Any row whose run_after has come. Claims are quick as long as there is none.
SELECT 1 FROM django_ox_oxtask INDEXED BY oxpull_async_deferred_idx WHERE {{has_come}} LIMIT 1

-- name: claim
-- One statement grants up to a limit of rows without a run_after.
-- The index is named, because the planner would walk the READY rows of every code base in another one; in this
-- one it leaves each path as soon as that path's next row can't be among the first any more.
UPDATE django_ox_oxtask
SET {{begin_attempt}}
WHERE id IN (
    SELECT id FROM django_ox_oxtask INDEXED BY oxpull_async_undeferred_idx
    WHERE {{is_undeferred}}
    ORDER BY priority DESC, enqueued_at
    LIMIT :limit
)
RETURNING {{granted}}

-- name: claim_from_all_lines
-- The same among rows whose run_after has come too.
UPDATE django_ox_oxtask
SET {{begin_attempt}}
WHERE id IN (SELECT id FROM ({{heads}}))
RETURNING {{granted}}

-- name: lock_due_tasks
-- The same rows, but they are only looked at: whether an exclusive task may run depends on its key. The transaction
-- that surrounds this holds the file's write lock.
SELECT task.id, task.task_path, task.args, task.kwargs, task.errors
FROM ({{heads}}) AS head CROSS JOIN django_ox_oxtask AS task ON task.id = head.id
ORDER BY head.priority DESC, head.enqueued_at

-- name: held
-- What runs under a worker's name, to be compared with what the worker knows of.
SELECT {{granted}} FROM django_ox_oxtask
WHERE status = 'RUNNING' AND locked_by = :worker_id AND lease_expires_at > {{database_now}}

-- name: next_due
-- Asked when nothing is due that may be claimed; what was due already waits for something else. Where the next rows
-- of a path are all of other queues, it's the last of those that were read.
SELECT min((
    SELECT COALESCE(
        min(CASE WHEN :any_queue OR queue_name IN (SELECT value FROM json_each(:queues)) THEN run_after END),
        CASE WHEN count(*) = 200 THEN max(run_after) END
    )
    FROM (
        SELECT run_after, queue_name FROM django_ox_oxtask INDEXED BY oxpull_async_deferred_idx
        WHERE status = 'READY' AND task_path = path.value AND run_after > :now
        ORDER BY run_after LIMIT 200
    )
)) FROM json_each(:task_paths) AS path

-- name: renew
-- Every lease of a worker at once, fenced by epoch.
UPDATE django_ox_oxtask AS task
SET locked_at = {{database_now}}, lease_expires_at = {{lease_end}}
FROM json_each(:granted) AS granted
WHERE {{is_granted}} AND +task.status = 'RUNNING' AND task.locked_by = :worker_id
RETURNING id

-- name: release
-- A claim that never ran: the attempt is refunded, and the epoch moves so that the grant is void.
UPDATE django_ox_oxtask AS task
SET status = 'READY', attempts = attempts - 1, lease_epoch = lease_epoch + 1,
    worker_ids = json_remove(worker_ids, '$[#-1]'),
    started_at = CASE WHEN attempts = 1 THEN NULL ELSE started_at END,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
FROM json_each(:granted) AS granted
WHERE {{is_granted}} AND +task.status = 'RUNNING' AND task.locked_by = :worker_id
RETURNING id
