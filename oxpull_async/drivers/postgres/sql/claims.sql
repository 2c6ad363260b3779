-- fragment: is_due
-- The range instead of an equality keeps the path in the order of the claim index: without it the planner may take
-- the reference's index, and read every foreign row at the head.
ready.status = 'READY' AND ready.task_path >= path.name AND ready.task_path <= path.name
AND (run_after IS NULL OR run_after <= :now::timestamptz)
AND (:any_queue::boolean OR queue_name = ANY(:queues::varchar[])) AND {{is_open}}

-- fragment: grant
-- What was locked is the worker's.
UPDATE django_ox_oxtask AS task
SET {{begin_attempt}}
FROM due WHERE task.id = due.id
RETURNING {{granted}}

-- name: claim
-- One statement grants up to a limit of one path's rows, read in their order and no further than needed.
-- Rows that another claimer is taking are passed over.
WITH path AS (
    SELECT :task_path::varchar AS name
), due AS MATERIALIZED (
    SELECT ready.id FROM path CROSS JOIN LATERAL (
        SELECT ready.id FROM django_ox_oxtask AS ready WHERE {{is_due}}
        ORDER BY ready.task_path, priority DESC, enqueued_at LIMIT :limit::int
        FOR UPDATE SKIP LOCKED
    ) AS ready
)
{{grant}}

-- fragment: path_shares
-- First it's seen, without locks, how many rows each path has among the first of all; then so many of each path are
-- locked. Locking a whole limit of each would keep other claimers from all of them.
SELECT head.name, count(*) AS share FROM (
    SELECT path.name FROM unnest(:task_paths::varchar[]) AS path (name) CROSS JOIN LATERAL (
        SELECT priority, enqueued_at FROM django_ox_oxtask AS ready WHERE {{is_due}}
        ORDER BY ready.task_path, priority DESC, enqueued_at LIMIT :limit::int
    ) AS ready
    ORDER BY ready.priority DESC, ready.enqueued_at LIMIT :limit::int
) AS head GROUP BY head.name

-- name: claim_among
-- The same among several paths.
WITH path AS MATERIALIZED (
    {{path_shares}}
), due AS MATERIALIZED (
    SELECT ready.id FROM path CROSS JOIN LATERAL (
        SELECT ready.id FROM django_ox_oxtask AS ready WHERE {{is_due}}
        ORDER BY ready.task_path, priority DESC, enqueued_at LIMIT path.share
        FOR UPDATE SKIP LOCKED
    ) AS ready
)
{{grant}}

-- name: lock_due_tasks
-- The same rows, but each is only locked: whether an exclusive task may run depends on its key.
WITH path AS MATERIALIZED (
    {{path_shares}}
)
SELECT ready.* FROM path CROSS JOIN LATERAL (
    SELECT id, task_path, args::text, kwargs::text, errors::text, priority, enqueued_at
    FROM django_ox_oxtask AS ready WHERE {{is_due}}
    ORDER BY ready.task_path, priority DESC, enqueued_at LIMIT path.share
    FOR UPDATE SKIP LOCKED
) AS ready

-- name: held
-- What runs under a worker's name, to be compared with what the worker knows of.
SELECT {{granted}} FROM django_ox_oxtask AS task
WHERE task.status = 'RUNNING' AND task.locked_by = :worker_id::varchar
    AND task.lease_expires_at > STATEMENT_TIMESTAMP()

-- name: next_due
-- Asked when nothing is due that may be claimed; what was due already waits for something else.
SELECT min(ready.run_after)
FROM unnest(:task_paths::varchar[]) AS path (name)
JOIN django_ox_oxtask AS ready ON ready.task_path = path.name
WHERE ready.status = 'READY' AND (:any_queue::boolean OR queue_name = ANY(:queues::varchar[]))
    AND run_after > :now::timestamptz

-- name: renew
-- Every lease of a worker at once, fenced by epoch; rows that another transaction is writing are passed over.
-- The status is hidden from the planner: see settle.
WITH held AS MATERIALIZED (
    SELECT task.id
    FROM unnest(:ids::uuid[], :epochs::bigint[]) AS input (id, lease_epoch)
    JOIN django_ox_oxtask AS task ON task.id = input.id AND task.lease_epoch = input.lease_epoch
    WHERE task.status || '' = 'RUNNING' AND task.locked_by = :worker_id::varchar
    ORDER BY task.id
    FOR NO KEY UPDATE OF task SKIP LOCKED
)
UPDATE django_ox_oxtask AS task
SET locked_at = STATEMENT_TIMESTAMP(),
    lease_expires_at = STATEMENT_TIMESTAMP() + make_interval(secs => :lease_seconds::float8)
FROM held WHERE task.id = held.id
RETURNING task.id

-- name: release
-- A claim that never ran: the attempt is refunded, and the epoch moves so that the grant is void.
-- The status is hidden from the planner: see settle.
WITH held AS MATERIALIZED (
    SELECT task.id
    FROM unnest(:ids::uuid[], :epochs::bigint[]) AS input (id, lease_epoch)
    JOIN django_ox_oxtask AS task ON task.id = input.id AND task.lease_epoch = input.lease_epoch
    WHERE task.status || '' = 'RUNNING' AND task.locked_by = :worker_id::varchar
    ORDER BY task.id
    FOR NO KEY UPDATE OF task
)
UPDATE django_ox_oxtask AS task
SET status = 'READY', attempts = attempts - 1, lease_epoch = lease_epoch + 1,
    worker_ids = worker_ids - (jsonb_array_length(worker_ids) - 1),
    started_at = CASE WHEN attempts = 1 THEN NULL ELSE started_at END,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
FROM held WHERE task.id = held.id
RETURNING task.id
