-- name: probe_tables
-- Fails where a table is missing; reads nothing.
SELECT 1 FROM django_ox_oxtask, oxpull_oxpulluniquelock, django_ox_oxscheduletick, oxpull_oxpullbatch,
    oxpull_oxpullbatchmember, oxpull_async_leader
LIMIT 0

-- name: list_steps
-- The steps of the schema that were applied here.
SELECT name FROM oxpull_async_migration

-- name: count_pending
-- All that is READY or RUNNING, however much: each by an index of its own status. Names are told apart by their bytes,
-- for a collation may take two of them for one.
SELECT queue_name, task_path, 'READY', COUNT(*), COUNT(due), MIN(due), MAX(last_attempted_at)
FROM (
    SELECT queue_name, task_path, last_attempted_at,
        CASE WHEN run_after IS NULL THEN enqueued_at WHEN run_after <= :now THEN run_after END AS due
    FROM django_ox_oxtask WHERE status = 'READY'
) AS ready
GROUP BY queue_name, task_path, CAST(queue_name AS BINARY), CAST(task_path AS BINARY)
UNION ALL
SELECT queue_name, task_path, 'RUNNING', COUNT(*), 0, NULL, MAX(last_attempted_at)
FROM django_ox_oxtask WHERE status = 'RUNNING'
GROUP BY queue_name, task_path, CAST(queue_name AS BINARY), CAST(task_path AS BINARY)

-- name: count_undecided
-- Up to a limit for each status.
SELECT queue_name, status, COUNT(*)
FROM (
    (SELECT queue_name, status FROM django_ox_oxtask WHERE status = 'WAITING' LIMIT :limit)
    UNION ALL
    (SELECT queue_name, status FROM django_ox_oxtask WHERE status = 'FAILED' LIMIT :limit)
    UNION ALL
    (SELECT queue_name, status FROM django_ox_oxtask WHERE status = 'LOST' LIMIT :limit)
) AS undecided
GROUP BY queue_name, status, CAST(queue_name AS BINARY)

-- name: count_finished
-- The latest, up to a limit, so that a million of settled rows costs no more than a few thousand.
SELECT queue_name, status, COUNT(*), COUNT(CASE WHEN finished_at >= :since THEN 1 END),
    MIN(finished_at), MAX(last_attempted_at)
FROM (
    SELECT queue_name, status, finished_at, last_attempted_at
    FROM django_ox_oxtask WHERE finished_at IS NOT NULL
    ORDER BY finished_at DESC LIMIT :limit
) AS latest
GROUP BY queue_name, status, CAST(queue_name AS BINARY)

-- name: list_locks
-- In key order, from behind the last key of the page before.
SELECT unique_lock.`key`, unique_lock.task_id, unique_lock.task_path, unique_lock.queue_name, unique_lock.created_at,
    task.status
FROM oxpull_oxpulluniquelock AS unique_lock
LEFT JOIN django_ox_oxtask AS task ON task.id = unique_lock.task_id
WHERE unique_lock.`key` > :after
ORDER BY unique_lock.`key` LIMIT :limit
