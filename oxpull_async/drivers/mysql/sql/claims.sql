-- fragment: is_wanted
-- Serves one path: with several the server would sort, and lock, every row of all of them. The index compares
-- without regard to case or trailing spaces where the column's collation does, so path and queue are compared again,
-- byte by byte.
status = 'READY' AND task_path = :task_path AND CAST(CONVERT(task_path USING utf8mb4) AS BINARY) = :task_path
AND (:any_queue OR CAST(CONVERT(queue_name USING utf8mb4) AS BINARY) IN :queues)

-- name: find_due
-- The head of one path's line, read without locks; an idle worker's poll ends here.
SELECT task_path, priority, enqueued_at FROM django_ox_oxtask FORCE INDEX (oxpull_async_claim_idx)
WHERE {{is_wanted}} AND {{is_open}} AND (run_after IS NULL OR run_after <= :now)
ORDER BY priority DESC, enqueued_at LIMIT :limit

-- name: lock_due
-- Rows that another claimer is taking are passed over.
SELECT id, priority, enqueued_at FROM django_ox_oxtask FORCE INDEX (oxpull_async_claim_idx)
WHERE {{is_wanted}} AND {{is_open}} AND (run_after IS NULL OR run_after <= :now)
ORDER BY priority DESC, enqueued_at LIMIT :limit
FOR UPDATE SKIP LOCKED

-- name: find_due_tasks
-- The ids of one path's rows, read without locks: a locking scan would take hold of all that wait ahead of them.
SELECT id, priority, enqueued_at FROM django_ox_oxtask FORCE INDEX (oxpull_async_claim_idx)
WHERE {{is_wanted}} AND {{is_open}} AND (run_after IS NULL OR run_after <= :now)
ORDER BY priority DESC, enqueued_at LIMIT :limit

-- name: lock_due_tasks
-- Judged again under row locks, with what is needed to say which key an exclusive task needs; rows that somebody is
-- taking are passed over.
SELECT id, task_path, args, kwargs, errors, priority, enqueued_at FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE id IN :ids AND status = 'READY' AND (run_after IS NULL OR run_after <= :now)
ORDER BY id FOR UPDATE SKIP LOCKED

-- name: grant_claims
-- Under the row locks of lock_due; then what was granted, and the end of the transaction.
UPDATE django_ox_oxtask FORCE INDEX (PRIMARY)
SET {{begin_attempt}}
WHERE id IN :ids;
SELECT {{granted}} FROM django_ox_oxtask WHERE id IN :ids;
COMMIT

-- name: held
-- What runs under a worker's name, to be compared with what the worker knows of.
SELECT {{granted}} FROM django_ox_oxtask
WHERE status = 'RUNNING' AND locked_by = :worker_id AND lease_expires_at > UTC_TIMESTAMP(6)

-- name: next_due
-- Asked when nothing is due that may be claimed; what was due already waits for something else.
SELECT MIN(run_after) FROM django_ox_oxtask FORCE INDEX (oxpull_async_claim_idx)
WHERE {{is_wanted}} AND run_after > :now

-- name: lock_leases
-- Rows that this worker still holds at their epochs, in id order; those that another transaction is writing are
-- passed over.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE (id, lease_epoch) IN :fences AND status = 'RUNNING' AND locked_by = :worker_id
ORDER BY id FOR UPDATE SKIP LOCKED

-- name: extend_leases
-- Under the row locks of lock_leases.
UPDATE django_ox_oxtask FORCE INDEX (PRIMARY)
SET locked_at = UTC_TIMESTAMP(6),
    lease_expires_at = TIMESTAMPADD(MICROSECOND, :lease_microseconds, UTC_TIMESTAMP(6))
WHERE id IN :ids;
COMMIT

-- name: lock_unrun
-- The same rows, but each is waited for.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE (id, lease_epoch) IN :fences AND status = 'RUNNING' AND locked_by = :worker_id
ORDER BY id FOR UPDATE

-- name: refund
-- Under the row locks of lock_unrun: the epoch moves so that the grant is void. What depends on the old values
-- comes first, for each column is assigned in turn.
UPDATE django_ox_oxtask FORCE INDEX (PRIMARY)
SET started_at = CASE WHEN attempts = 1 THEN NULL ELSE started_at END,
    worker_ids = JSON_REMOVE(worker_ids, CONCAT('$[', JSON_LENGTH(worker_ids) - 1, ']')),
    status = 'READY', attempts = attempts - 1, lease_epoch = lease_epoch + 1,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id IN :ids;
COMMIT
