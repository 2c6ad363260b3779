-- fragment: holder_row
-- What a key's lock says, and its holder's row. Looked up, by OFFSET 0, for each key that was not free: the planner would
-- rather read the tables, as small as they were when it planned.
unique_lock.key AS lock_key, unique_lock.task_id, {{task_row}}

-- fragment: lock_and_task
-- The lock where the key is free, and the task where there is the lock. The bound on the wait is set inside, before the
-- INSERT can wait. Without a bound given, the session's own stays.
WITH bound AS MATERIALIZED (
    SELECT set_config(
        'lock_timeout', COALESCE(:lock_timeout::text, current_setting('lock_timeout')), true
    ) AS lock_timeout
), new_lock AS (
    INSERT INTO oxpull_oxpulluniquelock (key, task_id, task_path, queue_name, created_at)
    SELECT :key::varchar, :id::uuid, :task_path::varchar, :queue_name::varchar, :enqueued_at::timestamptz
    FROM bound WHERE bound.lock_timeout IS NOT NULL
    ON CONFLICT (key) DO NOTHING
    RETURNING task_id
), new_task AS (
    INSERT INTO django_ox_oxtask (
        id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, status,
        run_after, attempts, max_attempts, errors, worker_ids, enqueued_at, lease_epoch
    )
    SELECT task_id, :task_path::varchar, :args::text::jsonb, :kwargs::text::jsonb, :queue_name::varchar,
        :priority::smallint, :takes_context::boolean, :backend_name::varchar, 'READY',
        :run_after::timestamptz, 0, :max_attempts::smallint, '[]', '[]', :enqueued_at::timestamptz, 0
    FROM new_lock
    RETURNING id {{and_told}}
)

-- name: insert_unique
-- Lock, task and the holder in one statement.
-- Who had to wait for a competitor sees neither its lock nor its task: the snapshot is older than its commit.
{{lock_and_task}}
SELECT new.inserted, current_setting('transaction_isolation'), holder.*
FROM (SELECT (SELECT true FROM new_task) AS inserted) AS new
LEFT JOIN LATERAL (
    SELECT {{holder_row}}
    FROM oxpull_oxpulluniquelock AS unique_lock LEFT JOIN django_ox_oxtask AS task ON task.id = unique_lock.task_id
    WHERE unique_lock.key = :key::varchar AND new.inserted IS NULL
    OFFSET 0
) AS holder ON true

-- name: insert_free
-- The same without the holder, for a key that is probably free: the look for one is prepared even where it isn't made,
-- which takes a tenth of the statement. No row tells that the key was not free.
{{lock_and_task}}
SELECT true FROM new_task

-- name: insert_uniques
-- The same for many keys, locks taken in key order so that two such statements can't deadlock. A row for each key that
-- was not free, and one with nothing but level and count where all were.
WITH bound AS MATERIALIZED (
    SELECT set_config(
        'lock_timeout', COALESCE(:lock_timeout::text, current_setting('lock_timeout')), true
    ) AS lock_timeout
), input AS MATERIALIZED (
    SELECT * FROM unnest(
        :keys::varchar[], :ids::uuid[], :task_paths::varchar[], :args::text[], :kwargs::text[],
        :queue_names::varchar[], :priorities::smallint[], :takes_contexts::boolean[],
        :backend_names::varchar[], :run_afters::timestamptz[], :max_attempts::smallint[],
        :enqueued_ats::timestamptz[]
    ) AS input (
        key, id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, run_after,
        max_attempts, enqueued_at
    )
), new_lock AS (
    INSERT INTO oxpull_oxpulluniquelock (key, task_id, task_path, queue_name, created_at)
    SELECT key, id, task_path, queue_name, enqueued_at
    FROM bound CROSS JOIN input WHERE bound.lock_timeout IS NOT NULL
    ORDER BY key
    ON CONFLICT (key) DO NOTHING
    RETURNING task_id
), new_task AS (
    INSERT INTO django_ox_oxtask (
        id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, status,
        run_after, attempts, max_attempts, errors, worker_ids, enqueued_at, lease_epoch
    )
    SELECT input.id, task_path, args::jsonb, kwargs::jsonb, queue_name, priority, takes_context,
        backend_name, 'READY', run_after, 0, max_attempts, '[]', '[]', enqueued_at, 0
    FROM input JOIN new_lock ON new_lock.task_id = input.id
    RETURNING id {{and_told}}
)
SELECT current_setting('transaction_isolation'), (SELECT count(*) FROM new_task) AS inserted, missed.*
FROM (VALUES (true)) AS always
LEFT JOIN (
    SELECT input.key, holder.*
    FROM input
    LEFT JOIN LATERAL (
        SELECT {{holder_row}}
        FROM oxpull_oxpulluniquelock AS unique_lock LEFT JOIN django_ox_oxtask AS task ON task.id = unique_lock.task_id
        WHERE unique_lock.key = input.key
        OFFSET 0
    ) AS holder ON true
    WHERE NOT EXISTS (SELECT FROM new_task WHERE new_task.id = input.id)
) AS missed ON true

-- name: read_holders
-- What the locks of these keys say now, each with its holder's row where that exists.
SELECT unique_lock.key, unique_lock.task_id, {{task_row}}
FROM oxpull_oxpulluniquelock AS unique_lock
LEFT JOIN django_ox_oxtask AS task ON task.id = unique_lock.task_id
WHERE unique_lock.key = ANY(:keys::varchar[])

-- name: lock_holders
-- A current read under row locks, in id order: an operator's retry still in flight is waited for, then seen.
WITH bound AS MATERIALIZED (
    SELECT set_config(
        'lock_timeout', COALESCE(:lock_timeout::text, current_setting('lock_timeout')), true
    ) AS lock_timeout
)
SELECT {{task_row}}
FROM bound CROSS JOIN django_ox_oxtask AS task
WHERE bound.lock_timeout IS NOT NULL AND task.id = ANY(:ids::uuid[])
ORDER BY task.id
FOR UPDATE OF task

-- name: delete_stale_locks
-- Compare-and-swap on the task id the lock named; never an UPDATE of a lock row, whose chain a waiting
-- prune of another writer would follow with its old snapshot and delete the live lock.
WITH stale AS MATERIALIZED (
    SELECT unique_lock.key
    FROM unnest(:keys::varchar[], :task_ids::uuid[]) AS input (key, task_id)
    JOIN oxpull_oxpulluniquelock AS unique_lock
        ON unique_lock.key = input.key AND unique_lock.task_id IS NOT DISTINCT FROM input.task_id
    ORDER BY unique_lock.key
    FOR UPDATE OF unique_lock
)
DELETE FROM oxpull_oxpulluniquelock AS unique_lock USING stale
WHERE unique_lock.key = stale.key
RETURNING unique_lock.key

-- name: probe_holders
-- Refused at once where a row was changed since the snapshot (40001) or is being written (55P03).
-- FOR SHARE, since FOR KEY SHARE would be granted beside a change of status.
SELECT id FROM django_ox_oxtask WHERE id = ANY(:ids::uuid[]) ORDER BY id FOR SHARE NOWAIT

-- name: set_lock_timeout
-- Bounds the waits of this transaction, and tells what bounded them before: read first, then set.
WITH before AS MATERIALIZED (SELECT current_setting('lock_timeout') AS lock_timeout)
SELECT before.lock_timeout FROM before
WHERE set_config('lock_timeout', :lock_timeout::text, true) || before.lock_timeout IS NOT NULL

-- name: isolation_level
-- Of this transaction.
SELECT current_setting('transaction_isolation')

-- name: identify
-- Which server, since which start, which database, and which tables the search path finds there. The start as a number:
-- as a text it would depend on the session's time zone.
SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text, current_database()::text,
    to_regclass('django_ox_oxtask')::oid::text, to_regclass('oxpull_oxpulluniquelock')::oid::text
