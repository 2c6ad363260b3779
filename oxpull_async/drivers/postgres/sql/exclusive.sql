-- fragment: insert_places
-- Each with a lease that begins now.
INSERT INTO oxpull_async_mutex_holder (mutex_key, number, owner, is_reserved, expires_at)
SELECT input.mutex_key, input.number, input.owner, input.is_reserved,
    STATEMENT_TIMESTAMP() + make_interval(secs => input.lease_seconds)
FROM unnest(:keys::varchar[], :numbers::bigint[], :owners::uuid[], :reserved::boolean[], :leases::float8[])
    AS input (mutex_key, number, owner, is_reserved, lease_seconds)

-- name: draw_numbers
-- Makes the rows of keys that are new, locks all of them in key order, and draws numbers for the callers of each: a
-- winner's is its fencing token, a loser's its place in line. A new row begins with the time in microseconds, so that
-- the numbers of a key grow even across the deletion of a row long unused.
INSERT INTO oxpull_async_mutex AS mutex (mutex_key, name, number, used_at)
SELECT input.mutex_key, input.name,
    (EXTRACT(EPOCH FROM STATEMENT_TIMESTAMP()) * 1000000)::bigint + :wanted::int, STATEMENT_TIMESTAMP()
FROM unnest(:keys::varchar[], :names::varchar[]) AS input (mutex_key, name)
ORDER BY input.mutex_key
ON CONFLICT (mutex_key) DO UPDATE
SET number = mutex.number + :wanted::int, used_at = STATEMENT_TIMESTAMP()
RETURNING mutex.mutex_key, mutex.number

-- name: lock_mutexes
-- In key order, as everybody locks them. Rows that are gone have no holder either.
SELECT mutex_key FROM oxpull_async_mutex WHERE mutex_key = ANY(:keys::varchar[]) ORDER BY mutex_key FOR UPDATE

-- name: read_places
-- Each key with its holders, how much longer their leases last by the database's clock, and who is first in line.
SELECT input.mutex_key, holder.number, holder.owner, holder.is_reserved,
    EXTRACT(EPOCH FROM holder.expires_at - STATEMENT_TIMESTAMP())::float8,
    (
        SELECT waiter.owner FROM oxpull_async_mutex_waiter AS waiter WHERE waiter.mutex_key = input.mutex_key
        ORDER BY waiter.number LIMIT 1
    )
FROM unnest(:keys::varchar[]) AS input (mutex_key)
LEFT JOIN oxpull_async_mutex_holder AS holder ON holder.mutex_key = input.mutex_key

-- name: delete_expired_places
-- A renewal that comes first keeps its row; one that comes later finds none.
DELETE FROM oxpull_async_mutex_holder
WHERE mutex_key = ANY(:keys::varchar[]) AND expires_at <= STATEMENT_TIMESTAMP()

-- name: insert_places
-- Under the locks of the mutex rows.
{{insert_places}}

-- name: delete_places
-- By key, number and owner: nobody deletes what has become somebody else's.
DELETE FROM oxpull_async_mutex_holder AS holder
USING unnest(:keys::varchar[], :numbers::bigint[], :owners::uuid[]) AS input (mutex_key, number, owner)
WHERE holder.mutex_key = input.mutex_key AND holder.number = input.number AND holder.owner = input.owner

-- name: release_places
-- The same on its own. Nobody waits for it to be on disk: where the server crashes before, the lease ends by itself.
DELETE FROM oxpull_async_mutex_holder AS holder
USING unnest(:keys::varchar[], :numbers::bigint[], :owners::uuid[]) AS input (mutex_key, number, owner)
WHERE holder.mutex_key = input.mutex_key AND holder.number = input.number AND holder.owner = input.owner
    AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off'
RETURNING holder.number

-- name: delete_owner
-- All that a caller has who gave up without an answer.
DELETE FROM oxpull_async_mutex_holder WHERE mutex_key = :key::varchar AND owner = :owner::uuid

-- name: insert_waiters
-- Who waits already keeps its place.
INSERT INTO oxpull_async_mutex_waiter (mutex_key, number, owner, capacity, run_after, expires_at)
SELECT input.mutex_key, input.number, input.owner, input.capacity, input.run_after,
    STATEMENT_TIMESTAMP() + make_interval(secs => input.patience)
FROM unnest(
    :keys::varchar[], :numbers::bigint[], :owners::uuid[], :capacities::int[], :run_afters::timestamptz[],
    :patiences::float8[]
) AS input (mutex_key, number, owner, capacity, run_after, patience)
ON CONFLICT (mutex_key, owner) DO UPDATE SET run_after = EXCLUDED.run_after, expires_at = EXCLUDED.expires_at

-- name: find_heads
-- Who is first in line for each key, whether there is somebody still, and how many places are taken.
SELECT waiter.mutex_key, waiter.number, waiter.owner, waiter.capacity, waiter.run_after,
    CASE WHEN waiter.expires_at IS NULL
        THEN EXISTS (
            SELECT 1 FROM django_ox_oxtask AS task WHERE task.id = waiter.owner AND task.status || '' = 'READY'
        )
        ELSE waiter.expires_at > STATEMENT_TIMESTAMP()
    END,
    (SELECT count(*) FROM oxpull_async_mutex_holder AS holder WHERE holder.mutex_key = waiter.mutex_key)
FROM unnest(:keys::varchar[]) AS input (mutex_key)
JOIN oxpull_async_mutex_waiter AS waiter ON waiter.mutex_key = input.mutex_key AND waiter.number = (
    SELECT min(first.number) FROM oxpull_async_mutex_waiter AS first WHERE first.mutex_key = input.mutex_key
)

-- name: find_dead_waiters
-- Places of callers who have stopped asking, and of tasks that are no longer READY.
SELECT waiter.mutex_key, waiter.number FROM oxpull_async_mutex_waiter AS waiter
WHERE waiter.mutex_key = ANY(:keys::varchar[]) AND CASE WHEN waiter.expires_at IS NULL
    THEN NOT EXISTS (
        SELECT 1 FROM django_ox_oxtask AS task WHERE task.id = waiter.owner AND task.status || '' = 'READY'
    )
    ELSE waiter.expires_at <= STATEMENT_TIMESTAMP()
END

-- name: delete_waiters
-- Under the locks of the mutex rows.
DELETE FROM oxpull_async_mutex_waiter AS waiter
USING unnest(:keys::varchar[], :numbers::bigint[]) AS input (mutex_key, number)
WHERE waiter.mutex_key = input.mutex_key AND waiter.number = input.number

-- name: delete_waiting_owner
-- A caller gives its place up.
DELETE FROM oxpull_async_mutex_waiter WHERE mutex_key = :key::varchar AND owner = :owner::uuid

-- name: renew_places
-- Every lease of a process at once. Rows that somebody is just deciding about are passed over: the next renewal
-- comes before their end.
WITH held AS MATERIALIZED (
    SELECT holder.mutex_key, holder.number, input.lease_seconds
    FROM unnest(:keys::varchar[], :numbers::bigint[], :owners::uuid[], :leases::float8[])
        AS input (mutex_key, number, owner, lease_seconds)
    JOIN oxpull_async_mutex_holder AS holder
        ON holder.mutex_key = input.mutex_key AND holder.number = input.number AND holder.owner = input.owner
    ORDER BY holder.mutex_key, holder.number
    FOR UPDATE OF holder SKIP LOCKED
)
UPDATE oxpull_async_mutex_holder AS holder
SET expires_at = STATEMENT_TIMESTAMP() + make_interval(secs => held.lease_seconds)
FROM held WHERE holder.mutex_key = held.mutex_key AND holder.number = held.number
RETURNING holder.mutex_key, holder.number

-- name: find_places
-- Those that are there still, whoever has them locked.
SELECT holder.mutex_key, holder.number
FROM unnest(:keys::varchar[], :numbers::bigint[], :owners::uuid[]) AS input (mutex_key, number, owner)
JOIN oxpull_async_mutex_holder AS holder
    ON holder.mutex_key = input.mutex_key AND holder.number = input.number AND holder.owner = input.owner

-- name: grant_tasks
-- Under the row locks of lock_due_tasks; as in a claim, together with the places of their keys.
WITH placed AS (
    {{insert_places}}
)
UPDATE django_ox_oxtask AS task
SET {{begin_attempt}}
WHERE id = ANY(:ids::uuid[])
RETURNING {{granted}}

-- name: postpone_tasks
-- Under the row locks of lock_due_tasks: nothing but run_after moves.
UPDATE django_ox_oxtask AS task SET run_after = input.run_after
FROM unnest(:ids::uuid[], :run_afters::timestamptz[]) AS input (id, run_after)
WHERE task.id = input.id

-- name: skip_tasks
-- Under the row locks of lock_due_tasks: settled without having run.
UPDATE django_ox_oxtask AS task SET status = 'DISCARDED', errors = input.errors::jsonb, finished_at = :now::timestamptz
FROM unnest(:ids::uuid[], :errors::text[]) AS input (id, errors)
WHERE task.id = input.id

-- name: wake_tasks
-- A place is kept for these. A row that somebody has moved meanwhile stays where it is.
WITH chosen AS MATERIALIZED (
    SELECT task.id FROM unnest(:ids::uuid[], :run_afters::timestamptz[]) AS input (id, run_after)
    JOIN django_ox_oxtask AS task ON task.id = input.id AND task.run_after = input.run_after
    WHERE task.status || '' = 'READY'
    ORDER BY task.id FOR NO KEY UPDATE OF task
)
UPDATE django_ox_oxtask AS task SET run_after = NULL FROM chosen WHERE task.id = chosen.id
RETURNING task.id

-- name: find_idle_mutexes
-- Long unused, and nobody holds or wants them.
SELECT mutex_key FROM oxpull_async_mutex AS mutex
WHERE used_at < STATEMENT_TIMESTAMP() - make_interval(secs => :idle_seconds::float8)
    AND NOT EXISTS (SELECT 1 FROM oxpull_async_mutex_holder AS holder WHERE holder.mutex_key = mutex.mutex_key)
    AND NOT EXISTS (SELECT 1 FROM oxpull_async_mutex_waiter AS waiter WHERE waiter.mutex_key = mutex.mutex_key)
LIMIT :limit::int FOR UPDATE SKIP LOCKED

-- name: delete_mutexes
-- Under the row locks of find_idle_mutexes.
DELETE FROM oxpull_async_mutex WHERE mutex_key = ANY(:keys::varchar[])

-- name: list_places
-- For people: who has which key, and how many wait for it. A task's since when its attempt runs.
SELECT mutex.name, holder.number, holder.owner, holder.is_reserved, holder.expires_at,
    holder.expires_at <= STATEMENT_TIMESTAMP(), task.task_path, task.locked_by, task.last_attempted_at,
    (SELECT count(*) FROM oxpull_async_mutex_waiter AS waiter WHERE waiter.mutex_key = holder.mutex_key)
FROM oxpull_async_mutex_holder AS holder
JOIN oxpull_async_mutex AS mutex ON mutex.mutex_key = holder.mutex_key
LEFT JOIN django_ox_oxtask AS task ON task.id = holder.owner AND task.status || '' = 'RUNNING'
WHERE :any_key::boolean OR holder.mutex_key = :key::varchar
ORDER BY mutex.name, holder.mutex_key, holder.number LIMIT :limit::int
