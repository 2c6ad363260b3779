-- fragment: is_held
-- Rows by key, number and owner.
(mutex_key, number, owner) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
    FROM json_each(:held)
)

-- fragment: is_there
-- A caller's place is renewed while it asks; a task's lasts as long as its row is READY.
(CASE WHEN waiter.expires_at IS NULL
    THEN EXISTS (SELECT 1 FROM django_ox_oxtask AS task WHERE task.id = waiter.owner AND +task.status = 'READY')
    ELSE waiter.expires_at > {{database_now}}
END)

-- name: draw_numbers
-- Makes the rows of keys that are new, and draws numbers for the callers of each: a winner's is its fencing token, a
-- loser's its place in line. A new row begins with the time in microseconds, so that the numbers of a key grow even
-- across the deletion of a row long unused. The WHERE keeps ON CONFLICT from being read as a join's ON.
INSERT INTO oxpull_async_mutex AS mutex (mutex_key, name, number, used_at)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'),
    CAST((julianday('now') - 2440587.5) * 86400000000 AS integer) + :wanted, {{database_now}}
FROM json_each(:mutexes) WHERE true
ON CONFLICT (mutex_key) DO UPDATE SET number = mutex.number + :wanted, used_at = {{database_now}}
RETURNING mutex_key, number

-- name: read_places
-- Each key with its holders, how much longer their leases last by the database's clock, and who is first in line.
SELECT input.value, holder.number, holder.owner, holder.is_reserved,
    (julianday(holder.expires_at) - julianday('now')) * 86400.0,
    (
        SELECT waiter.owner FROM oxpull_async_mutex_waiter AS waiter WHERE waiter.mutex_key = input.value
        ORDER BY waiter.number LIMIT 1
    )
FROM json_each(:keys) AS input
LEFT JOIN oxpull_async_mutex_holder AS holder ON holder.mutex_key = input.value

-- name: delete_expired_places
-- A renewal that comes first keeps its row; one that comes later finds none.
DELETE FROM oxpull_async_mutex_holder
WHERE mutex_key IN (SELECT value FROM json_each(:keys)) AND expires_at <= {{database_now}}

-- name: insert_places
-- Within the transaction that decides.
INSERT INTO oxpull_async_mutex_holder (mutex_key, number, owner, is_reserved, expires_at)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), strftime('%Y-%m-%d %H:%M:%f', 'now', json_extract(value, '$[4]')) || '000'
FROM json_each(:holders)

-- name: delete_places
-- By key, number and owner: nobody deletes what has become somebody else's.
DELETE FROM oxpull_async_mutex_holder
WHERE {{is_held}}

-- name: delete_owner
-- All that a caller has who gave up without an answer.
DELETE FROM oxpull_async_mutex_holder WHERE mutex_key = :key AND owner = :owner

-- name: insert_waiters
-- Who waits already keeps its place.
INSERT INTO oxpull_async_mutex_waiter (mutex_key, number, owner, capacity, run_after, expires_at)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]'),
    strftime('%Y-%m-%d %H:%M:%f', 'now', json_extract(value, '$[5]')) || '000'
FROM json_each(:waiters) WHERE true
ON CONFLICT (mutex_key, owner) DO UPDATE SET run_after = excluded.run_after, expires_at = excluded.expires_at

-- name: find_heads
-- Who is first in line for each key, whether there is somebody still, and how many places are taken.
SELECT waiter.mutex_key, waiter.number, waiter.owner, waiter.capacity, waiter.run_after, {{is_there}},
    (SELECT count(*) FROM oxpull_async_mutex_holder AS holder WHERE holder.mutex_key = waiter.mutex_key)
FROM json_each(:keys) AS input
JOIN oxpull_async_mutex_waiter AS waiter ON waiter.mutex_key = input.value AND waiter.number = (
    SELECT min(first.number) FROM oxpull_async_mutex_waiter AS first WHERE first.mutex_key = input.value
)

-- name: find_dead_waiters
-- Places of callers who have stopped asking, and of tasks that are no longer READY.
SELECT waiter.mutex_key, waiter.number FROM oxpull_async_mutex_waiter AS waiter
WHERE waiter.mutex_key IN (SELECT value FROM json_each(:keys)) AND NOT {{is_there}}

-- name: delete_waiters
-- By primary key.
DELETE FROM oxpull_async_mutex_waiter WHERE (mutex_key, number) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:places)
)

-- name: delete_waiting_owner
-- A caller gives its place up.
DELETE FROM oxpull_async_mutex_waiter WHERE mutex_key = :key AND owner = :owner

-- name: renew_places
-- Every lease of a process at once.
UPDATE oxpull_async_mutex_holder AS holder
SET expires_at = strftime('%Y-%m-%d %H:%M:%f', 'now', json_extract(held.value, '$[3]')) || '000'
FROM json_each(:held) AS held
WHERE holder.mutex_key = json_extract(held.value, '$[0]') AND holder.number = json_extract(held.value, '$[1]')
    AND holder.owner = json_extract(held.value, '$[2]')
RETURNING mutex_key, number

-- name: find_places
-- Those that are there still.
SELECT mutex_key, number FROM oxpull_async_mutex_holder
WHERE {{is_held}}

-- name: grant_tasks
-- Within the transaction that has found them; as in a claim.
UPDATE django_ox_oxtask
SET {{begin_attempt}}
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING {{granted}}

-- name: postpone_tasks
-- Nothing but run_after moves.
UPDATE django_ox_oxtask AS task SET run_after = json_extract(input.value, '$[1]')
FROM json_each(:moves) AS input WHERE task.id = json_extract(input.value, '$[0]')

-- name: skip_tasks
-- Settled without having run.
UPDATE django_ox_oxtask AS task SET status = 'DISCARDED', errors = json_extract(input.value, '$[1]'), finished_at = :now
FROM json_each(:reasons) AS input WHERE task.id = json_extract(input.value, '$[0]')

-- name: wake_tasks
-- A place is kept for these. A row that somebody has moved meanwhile stays where it is.
UPDATE django_ox_oxtask AS task SET run_after = NULL
FROM json_each(:moves) AS input
WHERE task.id = json_extract(input.value, '$[0]') AND task.run_after = json_extract(input.value, '$[1]')
    AND +task.status = 'READY'
RETURNING id

-- name: find_idle_mutexes
-- Long unused, and nobody holds or wants them.
SELECT mutex_key FROM oxpull_async_mutex AS mutex
WHERE used_at < strftime('%Y-%m-%d %H:%M:%f', 'now', :idle) || '000'
    AND NOT EXISTS (SELECT 1 FROM oxpull_async_mutex_holder AS holder WHERE holder.mutex_key = mutex.mutex_key)
    AND NOT EXISTS (SELECT 1 FROM oxpull_async_mutex_waiter AS waiter WHERE waiter.mutex_key = mutex.mutex_key)
LIMIT :limit

-- name: delete_mutexes
-- Within the transaction that has found them.
DELETE FROM oxpull_async_mutex WHERE mutex_key IN (SELECT value FROM json_each(:keys))

-- name: list_places
-- For people: who has which key, and how many wait for it. A task's since when its attempt runs.
SELECT mutex.name, holder.number, holder.owner, holder.is_reserved, holder.expires_at,
    holder.expires_at <= {{database_now}}, task.task_path, task.locked_by, task.last_attempted_at,
    (SELECT count(*) FROM oxpull_async_mutex_waiter AS waiter WHERE waiter.mutex_key = holder.mutex_key)
FROM oxpull_async_mutex_holder AS holder
JOIN oxpull_async_mutex AS mutex ON mutex.mutex_key = holder.mutex_key
LEFT JOIN django_ox_oxtask AS task ON task.id = holder.owner AND +task.status = 'RUNNING'
WHERE :any_key OR holder.mutex_key = :key
ORDER BY mutex.name, holder.mutex_key, holder.number LIMIT :limit
