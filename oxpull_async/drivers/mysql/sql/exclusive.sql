-- fragment: place_columns
-- Each key with its holders, how much longer their leases last by the database's clock, and who is first in line.
input.mutex_key, holder.number, holder.owner, holder.is_reserved,
    TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), holder.expires_at) / 1000000.0,
    (
        SELECT waiter.owner FROM oxpull_async_mutex_waiter AS waiter WHERE waiter.mutex_key = input.mutex_key
        ORDER BY waiter.number LIMIT 1
    )

-- fragment: places
-- Of the keys of a document.
JSON_TABLE(:keys, '$[*]' COLUMNS (mutex_key varchar(64) CHARACTER SET ascii PATH '$')) AS input
LEFT JOIN oxpull_async_mutex_holder AS holder FORCE INDEX (PRIMARY) ON holder.mutex_key = input.mutex_key

-- fragment: input_holders
-- Holders as a caller knows them.
JSON_TABLE(:held, '$[*]' COLUMNS (
    mutex_key varchar(64) CHARACTER SET ascii PATH '$[0]', number bigint PATH '$[1]',
    owner char(32) CHARACTER SET ascii PATH '$[2]'
)) AS input
STRAIGHT_JOIN oxpull_async_mutex_holder AS holder FORCE INDEX (PRIMARY)
    ON holder.mutex_key = input.mutex_key AND holder.number = input.number AND holder.owner = input.owner

-- fragment: is_there
-- A caller's place is renewed while it asks; a task's lasts as long as its row is READY.
(CASE WHEN waiter.expires_at IS NULL
    THEN EXISTS (
        SELECT 1 FROM django_ox_oxtask AS task FORCE INDEX (PRIMARY)
        WHERE task.id = waiter.owner AND task.status = 'READY'
    )
    ELSE waiter.expires_at > UTC_TIMESTAMP(6)
END)

-- name: draw_numbers
-- Makes the rows of keys that are new, locks all of them in key order, and draws numbers for the callers of each: a
-- winner's is its fencing token, a loser's its place in line. A new row begins with the time in microseconds, so that
-- the numbers of a key grow even across the deletion of a row long unused. Then what was drawn, and who has the keys.
INSERT INTO oxpull_async_mutex (mutex_key, name, number, used_at)
SELECT input.mutex_key, input.name, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + :wanted, UTC_TIMESTAMP(6)
FROM JSON_TABLE(:mutexes, '$[*]' COLUMNS (
    mutex_key varchar(64) CHARACTER SET ascii PATH '$[0]', name varchar(255) CHARACTER SET utf8mb4 PATH '$[1]'
)) AS input
ON DUPLICATE KEY UPDATE number = oxpull_async_mutex.number + :wanted, used_at = UTC_TIMESTAMP(6);
SELECT {{place_columns}}, mutex.number FROM {{places}}
JOIN oxpull_async_mutex AS mutex ON mutex.mutex_key = input.mutex_key

-- name: lock_mutexes
-- In key order, as everybody locks them. Rows that are gone have no holder either.
SELECT mutex_key, number FROM oxpull_async_mutex FORCE INDEX (PRIMARY)
WHERE mutex_key IN :keys ORDER BY mutex_key FOR UPDATE

-- name: read_places
-- As they are committed, or written by this transaction.
SELECT {{place_columns}} FROM {{places}}

-- name: delete_expired_places
-- A renewal that comes first keeps its row; one that comes later finds none.
DELETE FROM oxpull_async_mutex_holder WHERE mutex_key IN :keys AND expires_at <= UTC_TIMESTAMP(6)

-- name: insert_place
-- Under the locks of the mutex rows.
INSERT INTO oxpull_async_mutex_holder (mutex_key, number, owner, is_reserved, expires_at)
VALUES (
    :key, :number, :owner, :is_reserved, TIMESTAMPADD(MICROSECOND, :lease_microseconds, UTC_TIMESTAMP(6))
)

-- name: delete_places
-- By key, number and owner: nobody deletes what has become somebody else's.
DELETE holder FROM {{input_holders}}

-- name: delete_owner
-- All that a caller has who gave up without an answer.
DELETE FROM oxpull_async_mutex_holder WHERE mutex_key = :key AND owner = :owner

-- name: insert_waiters
-- Who waits already keeps its place.
INSERT INTO oxpull_async_mutex_waiter (mutex_key, number, owner, capacity, run_after, expires_at)
SELECT input.mutex_key, input.number, input.owner, input.capacity, input.run_after,
    TIMESTAMPADD(MICROSECOND, input.patience, UTC_TIMESTAMP(6))
FROM JSON_TABLE(:waiters, '$[*]' COLUMNS (
    mutex_key varchar(64) CHARACTER SET ascii PATH '$[0]', number bigint PATH '$[1]',
    owner char(32) CHARACTER SET ascii PATH '$[2]', capacity integer PATH '$[3]',
    run_after datetime(6) PATH '$[4]', patience bigint PATH '$[5]'
)) AS input
ON DUPLICATE KEY UPDATE run_after = VALUES(run_after), expires_at = VALUES(expires_at)

-- name: find_heads
-- Who is first in line for each key, whether there is somebody still, and how many places are taken.
SELECT waiter.mutex_key, waiter.number, waiter.owner, waiter.capacity, waiter.run_after, {{is_there}},
    (SELECT count(*) FROM oxpull_async_mutex_holder AS holder WHERE holder.mutex_key = waiter.mutex_key)
FROM (
    SELECT mutex_key, min(number) AS number FROM oxpull_async_mutex_waiter FORCE INDEX (PRIMARY)
    WHERE mutex_key IN :keys GROUP BY mutex_key
) AS head
JOIN oxpull_async_mutex_waiter AS waiter ON waiter.mutex_key = head.mutex_key AND waiter.number = head.number

-- name: find_dead_waiters
-- Places of callers who have stopped asking, and of tasks that are no longer READY.
SELECT waiter.mutex_key, waiter.number FROM oxpull_async_mutex_waiter AS waiter FORCE INDEX (PRIMARY)
WHERE waiter.mutex_key IN :keys AND NOT {{is_there}}

-- name: delete_waiters
-- By primary key.
DELETE FROM oxpull_async_mutex_waiter WHERE (mutex_key, number) IN :places

-- name: delete_waiting_owner
-- A caller gives its place up.
DELETE FROM oxpull_async_mutex_waiter WHERE mutex_key = :key AND owner = :owner

-- name: lock_places
-- Those that are there still, in the order of the primary key. Rows that somebody is just deciding about are passed
-- over: the next renewal comes before their end.
SELECT mutex_key, number FROM oxpull_async_mutex_holder FORCE INDEX (PRIMARY)
WHERE (mutex_key, number, owner) IN :fenced ORDER BY mutex_key, number FOR UPDATE SKIP LOCKED

-- name: renew_places
-- Under the row locks of lock_places.
UPDATE JSON_TABLE(:leases, '$[*]' COLUMNS (
    mutex_key varchar(64) CHARACTER SET ascii PATH '$[0]', number bigint PATH '$[1]', lease bigint PATH '$[2]'
)) AS input
STRAIGHT_JOIN oxpull_async_mutex_holder AS holder FORCE INDEX (PRIMARY)
    ON holder.mutex_key = input.mutex_key AND holder.number = input.number
SET holder.expires_at = TIMESTAMPADD(MICROSECOND, input.lease, UTC_TIMESTAMP(6))

-- name: find_places
-- Those that are there still, whoever has them locked.
SELECT holder.mutex_key, holder.number FROM {{input_holders}}

-- name: grant_tasks
-- Under the row locks of lock_due_tasks; as in a claim, then what was granted.
UPDATE django_ox_oxtask FORCE INDEX (PRIMARY)
SET {{begin_attempt}}
WHERE id IN :ids;
SELECT {{granted}} FROM django_ox_oxtask WHERE id IN :ids

-- name: postpone_tasks
-- Under the row locks of lock_due_tasks: nothing but run_after moves.
UPDATE JSON_TABLE(:moves, '$[*]' COLUMNS (
    id char(32) CHARACTER SET ascii PATH '$[0]', run_after datetime(6) PATH '$[1]'
)) AS input
STRAIGHT_JOIN django_ox_oxtask AS task FORCE INDEX (PRIMARY) ON task.id = input.id
SET task.run_after = input.run_after

-- name: skip_tasks
-- Under the row locks of lock_due_tasks: settled without having run.
UPDATE JSON_TABLE(:reasons, '$[*]' COLUMNS (
    id char(32) CHARACTER SET ascii PATH '$[0]', errors longtext PATH '$[1]'
)) AS input
STRAIGHT_JOIN django_ox_oxtask AS task FORCE INDEX (PRIMARY) ON task.id = input.id
SET task.status = 'DISCARDED', task.errors = input.errors, task.finished_at = :now

-- name: lock_sleeping_tasks
-- A place is kept for these. A row that somebody has moved meanwhile stays where it is.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE (id, run_after) IN :sleeping AND status = 'READY' ORDER BY id FOR UPDATE

-- name: wake_tasks
-- Under the row locks of lock_sleeping_tasks.
UPDATE django_ox_oxtask FORCE INDEX (PRIMARY) SET run_after = NULL WHERE id IN :ids

-- name: find_idle_mutexes
-- Long unused, and nobody holds or wants them.
SELECT mutex_key FROM oxpull_async_mutex AS mutex
WHERE used_at < TIMESTAMPADD(MICROSECOND, -:idle_microseconds, UTC_TIMESTAMP(6))
    AND NOT EXISTS (SELECT 1 FROM oxpull_async_mutex_holder AS holder WHERE holder.mutex_key = mutex.mutex_key)
    AND NOT EXISTS (SELECT 1 FROM oxpull_async_mutex_waiter AS waiter WHERE waiter.mutex_key = mutex.mutex_key)
LIMIT :limit FOR UPDATE SKIP LOCKED

-- name: delete_mutexes
-- Under the row locks of find_idle_mutexes.
DELETE FROM oxpull_async_mutex WHERE mutex_key IN :keys

-- name: list_places
-- For people: who has which key, and how many wait for it. A task's since when its attempt runs.
SELECT mutex.name, holder.number, holder.owner, holder.is_reserved, holder.expires_at,
    holder.expires_at <= UTC_TIMESTAMP(6), task.task_path, task.locked_by, task.last_attempted_at,
    (SELECT count(*) FROM oxpull_async_mutex_waiter AS waiter WHERE waiter.mutex_key = holder.mutex_key)
FROM oxpull_async_mutex_holder AS holder
JOIN oxpull_async_mutex AS mutex ON mutex.mutex_key = holder.mutex_key
LEFT JOIN django_ox_oxtask AS task ON task.id = holder.owner AND task.status = 'RUNNING'
WHERE :any_key OR holder.mutex_key = :key
ORDER BY mutex.name, holder.mutex_key, holder.number LIMIT :limit
