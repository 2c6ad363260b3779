-- fragment: grant
-- What was locked is the worker's.
UPDATE django_ox_oxtask AS task
SET {{begin_attempt}}
FROM due WHERE task.id = due.id
RETURNING {{granted}}

-- fragment: a_late_row
-- Any row of a path whose run_after has come, whether or not its queue is open: a quick look, and claims are quick as
-- long as it finds nothing. The instant is hidden from the planner, which would plan for just this one, each time anew.
SELECT 1 FROM django_ox_oxtask AS ready
WHERE ready.status = 'READY' AND ready.task_path >= path.name AND ready.task_path <= path.name
    AND (:any_queue::boolean OR queue_name = ANY(:queues::varchar[]))
    AND run_after <= (SELECT :now::timestamptz)
ORDER BY ready.task_path, run_after LIMIT 1

-- fragment: late_rows
-- One of any path. The paths are hidden from the planner too.
SELECT 1 FROM unnest((SELECT :task_paths::varchar[])) AS path (name) CROSS JOIN LATERAL ({{a_late_row}}) AS late

-- name: claim
-- One statement grants up to a limit of one path's rows without a run_after, read in their order and no further than
-- needed. Rows that another claimer is taking are passed over. Nothing is granted where rows with a run_after are due.
WITH path AS MATERIALIZED (
    SELECT :task_path::varchar AS name
), due AS MATERIALIZED (
    SELECT ready.id FROM path CROSS JOIN LATERAL (
        SELECT ready.id FROM django_ox_oxtask AS ready WHERE {{is_undeferred}}
        ORDER BY ready.task_path, priority DESC, enqueued_at LIMIT :limit::int
        FOR UPDATE SKIP LOCKED
    ) AS ready
    WHERE NOT (SELECT EXISTS (
        SELECT 1 FROM (SELECT :task_path::varchar AS name) AS path CROSS JOIN LATERAL ({{a_late_row}}) AS late
    ))
)
{{grant}}

-- name: claim_among
-- The same among several paths. First it's seen, without locks, how many rows each path has among the first of all;
-- then so many of each path are locked. Locking a whole limit of each would keep other claimers from all of them.
WITH path AS MATERIALIZED (
    SELECT head.name, count(*) AS share FROM (
        SELECT path.name FROM unnest((SELECT :task_paths::varchar[])) AS path (name) CROSS JOIN LATERAL (
            SELECT priority, enqueued_at FROM django_ox_oxtask AS ready WHERE {{is_undeferred}}
            ORDER BY ready.task_path, priority DESC, enqueued_at LIMIT :limit::int
        ) AS ready
        WHERE NOT EXISTS ({{late_rows}})
        ORDER BY ready.priority DESC, ready.enqueued_at LIMIT :limit::int
    ) AS head GROUP BY head.name
), due AS MATERIALIZED (
    SELECT ready.id FROM path CROSS JOIN LATERAL (
        SELECT ready.id FROM django_ox_oxtask AS ready WHERE {{is_undeferred}}
        ORDER BY ready.task_path, priority DESC, enqueued_at LIMIT path.share
        FOR UPDATE SKIP LOCKED
    ) AS ready
)
{{grant}}

-- name: find_late_row
-- Asked when nothing was granted.
{{late_rows}} LIMIT 1

-- fragment: locked_heads
-- As in claim_among, but with a share for each line.
{{heads}}, share AS MATERIALIZED (
    SELECT name, line, count(*) AS size FROM head GROUP BY name, line
), due AS MATERIALIZED (
    SELECT ready.id FROM share AS path CROSS JOIN LATERAL (
        SELECT ready.id FROM django_ox_oxtask AS ready WHERE {{is_undeferred}}
        ORDER BY ready.task_path, priority DESC, enqueued_at LIMIT path.size
        FOR UPDATE SKIP LOCKED
    ) AS ready WHERE path.line = 'undeferred'
    UNION ALL
    SELECT ready.id FROM share AS path CROSS JOIN LATERAL (
        SELECT ready.id FROM django_ox_oxtask AS ready WHERE {{has_come_in_order}}
        ORDER BY ready.task_path, priority DESC, enqueued_at LIMIT path.size
        FOR UPDATE SKIP LOCKED
    ) AS ready WHERE path.line = 'many'
    UNION ALL
    (
        SELECT ready.id FROM (
            SELECT id FROM few ORDER BY priority DESC, enqueued_at
        ) AS few CROSS JOIN LATERAL (
            SELECT id FROM django_ox_oxtask
            WHERE id = few.id AND status = 'READY' AND run_after <= :now::timestamptz
            FOR UPDATE SKIP LOCKED
        ) AS ready
        LIMIT (SELECT COALESCE(sum(size), 0) FROM share WHERE line = 'few')
    )
)

-- name: claim_from_all_lines
-- Of the rows whose run_after has come too. An array, so that rows are looked up one by one, however many of them the
-- planner expects.
WITH {{locked_heads}}
UPDATE django_ox_oxtask AS task
SET {{begin_attempt}}
WHERE task.id = ANY(ARRAY(SELECT id FROM due))
RETURNING {{granted}}

-- name: lock_due_tasks
-- The same rows, but each is only locked: whether an exclusive task may run depends on its key. They are read as they
-- are once they are locked.
WITH {{locked_heads}}
SELECT ready.* FROM due CROSS JOIN LATERAL (
    SELECT id, task_path, args::text, kwargs::text, errors::text, priority, enqueued_at
    FROM django_ox_oxtask WHERE id = due.id FOR UPDATE
) AS ready

-- name: held
-- What runs under a worker's name, to be compared with what the worker knows of.
SELECT {{granted}} FROM django_ox_oxtask AS task
WHERE task.status = 'RUNNING' AND task.locked_by = :worker_id::varchar
    AND task.lease_expires_at > STATEMENT_TIMESTAMP()

-- name: next_due
-- Asked when nothing is due that may be claimed; what was due already waits for something else. Where the next rows
-- of a path are all of other queues, it's the last of those that were read.
SELECT min(COALESCE(next.due, next.seen))
FROM unnest(:task_paths::varchar[]) AS path (name) CROSS JOIN LATERAL (
    SELECT min(run_after) FILTER (WHERE :any_queue::boolean OR queue_name = ANY(:queues::varchar[])) AS due,
        CASE WHEN count(*) = 200 THEN max(run_after) END AS seen
    FROM (
        SELECT run_after, queue_name FROM django_ox_oxtask AS ready
        WHERE ready.status = 'READY' AND ready.task_path >= path.name AND ready.task_path <= path.name
            AND run_after > :now::timestamptz
        ORDER BY ready.task_path, run_after LIMIT 200
    ) AS ready
) AS next

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
