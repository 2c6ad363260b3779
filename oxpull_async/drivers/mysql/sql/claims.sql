-- name: find_due
-- The head of one path's line of rows without a run_after, and a run of its rows whose run_after has come, in no
-- particular order. Read without locks; an idle worker's poll ends here.
(
    SELECT id, task_path, priority, enqueued_at, FALSE FROM django_ox_oxtask FORCE INDEX (oxpull_async_due_idx)
    WHERE {{is_ours}} AND run_after IS NULL
    ORDER BY priority DESC, enqueued_at LIMIT :limit
) UNION ALL (
    SELECT id, task_path, priority, enqueued_at, TRUE FROM django_ox_oxtask FORCE INDEX (oxpull_async_due_idx)
    WHERE {{is_ours}} AND run_after <= :now
    LIMIT 500
)

-- name: find_due_among_first
-- Asked where that run isn't all. Of the first rows of all code bases those of one path that are due: if they are
-- enough, nothing else of the path can be ahead of them, and it isn't necessary to put all in order.
SELECT id, task_path, priority, enqueued_at, TRUE
FROM (
    SELECT id AS first_id FROM django_ox_oxtask FORCE INDEX (ox_dequeue_idx)
    WHERE status = 'READY' ORDER BY priority DESC, enqueued_at LIMIT 2000
) AS first STRAIGHT_JOIN django_ox_oxtask FORCE INDEX (PRIMARY) ON id = first_id
WHERE {{is_ours}} AND (run_after IS NULL OR run_after <= :now)
ORDER BY priority DESC, enqueued_at LIMIT :limit

-- name: find_late
-- Asked where they aren't enough: all rows of a path whose run_after has come are put in order.
SELECT id, task_path, priority, enqueued_at, TRUE FROM django_ox_oxtask FORCE INDEX (oxpull_async_due_idx)
WHERE {{is_ours}} AND run_after <= :now
ORDER BY priority DESC, enqueued_at LIMIT :limit

-- name: lock_due
-- Rows without a run_after, in their order. Those that another claimer is taking are passed over.
SELECT id, priority, enqueued_at FROM django_ox_oxtask FORCE INDEX (oxpull_async_due_idx)
WHERE {{is_ours}} AND run_after IS NULL
ORDER BY priority DESC, enqueued_at LIMIT :limit
FOR UPDATE SKIP LOCKED

-- name: lock_late
-- Rows that were found, if they are still due. Those that somebody is taking are passed over.
SELECT id, priority, enqueued_at FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE id IN :ids AND status = 'READY' AND (run_after IS NULL OR run_after <= :now)
ORDER BY id FOR UPDATE SKIP LOCKED

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
-- Asked when nothing is due that may be claimed; what was due already waits for something else. Where the next rows
-- of a path are all of other queues, it's the last of those that were read.
SELECT COALESCE(
    MIN(CASE WHEN {{is_in_queue}} THEN run_after END),
    CASE WHEN COUNT(*) = 200 THEN MAX(run_after) END
)
FROM (
    SELECT run_after, queue_name FROM django_ox_oxtask FORCE INDEX (oxpull_async_due_idx)
    WHERE {{is_of_path}} AND run_after > :now
    ORDER BY run_after LIMIT 200
) AS next

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
