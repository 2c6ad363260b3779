-- fragment: task_row
-- A task row as the library reads it. JSON as text: a caller's connection may have codecs of its own.
task.id, task.task_path, task.args::text, task.kwargs::text, task.queue_name, task.priority,
task.takes_context, task.backend_name, task.status, task.run_after, task.attempts, task.max_attempts,
task.return_value::text, task.errors::text, task.worker_ids::text, task.enqueued_at, task.started_at,
task.last_attempted_at, task.finished_at, task.locked_by, task.locked_at, task.lease_expires_at,
task.lease_epoch

-- fragment: channel
-- Of the schema that the tables are in, since a database may hold several queues.
'oxpull_async_' || left(COALESCE((
    SELECT nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass('django_ox_oxtask')
), current_schema(), ''), 40)

-- fragment: told
-- Nothing. Of rows that are written over the library's own connections others are told after the commit, beside it.

-- fragment: and_told
-- Nothing, as told.

-- fragment: tell
-- In the place of told, in a caller's transaction: its COMMIT tells, once, whatever it has enqueued.
RETURNING (SELECT pg_notify({{channel}}, 'ready'))

-- fragment: and_tell
-- In the place of and_told, as tell.
, (SELECT pg_notify({{channel}}, 'ready'))

-- fragment: is_open
-- A queue that neither this claim passes over nor anybody has paused, and without a limit, unless it's the one of
-- which so much may run. The list is read once for each statement.
queue_name <> ALL(:passed_queues::varchar[]) AND queue_name <> ALL(ARRAY(
    SELECT queue_name FROM oxpull_async_paused_queue
    UNION ALL SELECT queue_name FROM oxpull_async_queue_limit WHERE queue_name <> :limited_queue::varchar
))

-- fragment: granted
-- What a worker needs to know of a row that is its own.
task.id, task.task_path, task.args::text, task.kwargs::text, task.queue_name, task.priority,
task.takes_context, task.backend_name, task.attempts, task.max_attempts, task.errors::text,
task.worker_ids::text, task.lease_epoch, task.enqueued_at, task.lease_expires_at, task.run_after,
task.started_at, task.last_attempted_at

-- fragment: begin_attempt
-- Status, lease, epoch and attempt move together.
status = 'RUNNING', attempts = attempts + 1, lease_epoch = lease_epoch + 1,
locked_by = :worker_id::varchar, locked_at = STATEMENT_TIMESTAMP(),
last_attempted_at = STATEMENT_TIMESTAMP(),
lease_expires_at = STATEMENT_TIMESTAMP() + make_interval(secs => :lease_seconds::float8),
started_at = COALESCE(started_at, STATEMENT_TIMESTAMP()),
worker_ids = worker_ids || to_jsonb(:worker_id::varchar)

-- fragment: is_ours
-- READY rows of a path, and of a worker's queues. The range instead of an equality keeps the path in the order of the
-- claim indexes: without it the planner may take the reference's index, and read every foreign row at the head.
ready.status = 'READY' AND ready.task_path >= path.name AND ready.task_path <= path.name
AND (:any_queue::boolean OR queue_name = ANY(:queues::varchar[])) AND {{is_open}}

-- fragment: is_undeferred
-- By an index that only such rows stand in.
{{is_ours}} AND run_after IS NULL

-- fragment: has_come
-- By indexes that only rows with a run_after stand in. The instant is hidden from the planner, which would plan for
-- just this one, each time anew.
{{is_ours}} AND run_after <= (SELECT :now::timestamptz)

-- fragment: has_come_in_order
-- By the index that has them in the order of claims, which no other condition leads to, nor this one to another.
{{is_ours}} AND COALESCE(run_after, 'infinity') < 'infinity'
AND COALESCE(run_after, 'infinity') <= (SELECT :now::timestamptz)

-- fragment: heads
-- The first rows of all: of each path the line of those without a run_after, and of those whose run_after has come.
-- The latter are few, and read by that instant: then they are put in order here. Where a path has more of them, they
-- are walked in their order, and those that aren't due are passed over; it isn't far then to one that is.
come AS MATERIALIZED (
    SELECT path.name, ready.id, ready.priority, ready.enqueued_at
    FROM unnest((SELECT :task_paths::varchar[])) AS path (name) CROSS JOIN LATERAL (
        SELECT id, priority, enqueued_at FROM django_ox_oxtask AS ready WHERE {{has_come}}
        ORDER BY ready.task_path, run_after LIMIT 1000
    ) AS ready
), many AS MATERIALIZED (
    SELECT name FROM come GROUP BY name HAVING count(*) = 1000
), few AS MATERIALIZED (
    SELECT * FROM come WHERE name NOT IN (SELECT name FROM many)
), head AS MATERIALIZED (
    SELECT * FROM (
        SELECT path.name, 'undeferred' AS line, ready.priority, ready.enqueued_at
        FROM unnest((SELECT :task_paths::varchar[])) AS path (name) CROSS JOIN LATERAL (
            SELECT priority, enqueued_at FROM django_ox_oxtask AS ready WHERE {{is_undeferred}}
            ORDER BY ready.task_path, priority DESC, enqueued_at LIMIT :limit::int
        ) AS ready
        UNION ALL SELECT name, 'few', priority, enqueued_at FROM few
        UNION ALL SELECT path.name, 'many', ready.priority, ready.enqueued_at
        FROM many AS path CROSS JOIN LATERAL (
            SELECT priority, enqueued_at FROM django_ox_oxtask AS ready WHERE {{has_come_in_order}}
            ORDER BY ready.task_path, priority DESC, enqueued_at LIMIT :limit::int
        ) AS ready
    ) AS ready
    ORDER BY priority DESC, enqueued_at LIMIT :limit::int
)
