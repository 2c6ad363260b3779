-- fragment: is_wanted
-- READY rows of the paths and queues of a worker.
status = 'READY' AND task_path IN (SELECT value FROM json_each(:task_paths))
AND (:any_queue OR queue_name IN (SELECT value FROM json_each(:queues)))

-- name: probe
-- Asked before the file's write lock is taken, so that an idle worker doesn't get in the way of those who write.
SELECT EXISTS (
    SELECT 1 FROM django_ox_oxtask INDEXED BY oxpull_async_claim_idx
    WHERE {{is_wanted}} AND {{is_open}} AND (run_after IS NULL OR run_after <= :now)
)

-- name: claim
-- One statement grants up to a limit of rows.
-- The index is named, because the planner would walk the READY rows of every code base in another one; in this
-- one it leaves each path as soon as that path's next row can't be among the first any more.
UPDATE django_ox_oxtask
SET {{begin_attempt}}
WHERE id IN (
    SELECT id FROM django_ox_oxtask INDEXED BY oxpull_async_claim_idx
    WHERE {{is_wanted}} AND {{is_open}} AND (run_after IS NULL OR run_after <= :now)
    ORDER BY priority DESC, enqueued_at
    LIMIT :limit
)
RETURNING {{granted}}

-- name: lock_due_tasks
-- The same rows, but they are only looked at: whether an exclusive task may run depends on its key. The transaction
-- that surrounds this holds the file's write lock.
SELECT id, task_path, args, kwargs, errors FROM django_ox_oxtask INDEXED BY oxpull_async_claim_idx
WHERE {{is_wanted}} AND {{is_open}} AND (run_after IS NULL OR run_after <= :now)
ORDER BY priority DESC, enqueued_at LIMIT :limit

-- name: held
-- What runs under a worker's name, to be compared with what the worker knows of.
SELECT {{granted}} FROM django_ox_oxtask
WHERE status = 'RUNNING' AND locked_by = :worker_id AND lease_expires_at > {{database_now}}

-- name: next_due
-- Asked when nothing is due that may be claimed; what was due already waits for something else.
SELECT min(run_after) FROM django_ox_oxtask INDEXED BY oxpull_async_claim_idx
WHERE {{is_wanted}} AND run_after > :now

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
