-- name: peek
-- The heads of all lines, as a claim reads them, but without locks.
WITH {{heads}}
SELECT priority, enqueued_at FROM head ORDER BY priority DESC, enqueued_at

-- name: lock_windows
-- In the order of their names, as everybody here locks them. The time is the database's.
SELECT limit_name, window_id, window_started_at, used, STATEMENT_TIMESTAMP()
FROM oxpull_oxpullratewindow WHERE limit_name = ANY(:names::varchar[]) ORDER BY limit_name FOR UPDATE

-- name: make_window
-- A competitor's row serves as well.
INSERT INTO oxpull_oxpullratewindow (limit_name, window_id, window_started_at, used)
VALUES (:name::varchar, 0, STATEMENT_TIMESTAMP(), 0)
ON CONFLICT (limit_name) DO NOTHING

-- name: write_window
-- Under its row lock. A window that begins anew has a new id, by which Django processes tell it from the old one.
UPDATE oxpull_oxpullratewindow
SET window_id = :window_id::bigint, window_started_at = :started_at::timestamptz, used = :used::int
WHERE limit_name = :name::varchar

-- name: uncount
-- Only in the window that it was counted in.
UPDATE oxpull_oxpullratewindow SET used = used - :count::int
WHERE limit_name = :name::varchar AND window_id = :window_id::bigint AND used >= :count::int

-- name: lock_buckets
-- In the order of their names, as everybody here locks them. The time is the database's.
SELECT name, tokens, as_of, STATEMENT_TIMESTAMP()
FROM oxpull_async_rate_bucket WHERE name = ANY(:names::varchar[]) ORDER BY name FOR UPDATE

-- name: make_bucket
-- A competitor's row serves as well.
INSERT INTO oxpull_async_rate_bucket (name, tokens, as_of, full_at)
VALUES (:name::varchar, :tokens::float8, STATEMENT_TIMESTAMP(), STATEMENT_TIMESTAMP())
ON CONFLICT (name) DO NOTHING

-- name: write_bucket
-- Under its row lock.
UPDATE oxpull_async_rate_bucket SET tokens = :tokens::float8, as_of = :as_of::timestamptz, full_at = :full_at::timestamptz
WHERE name = :name::varchar

-- name: refill
-- Tokens that weren't used, as far as there is room for them.
UPDATE oxpull_async_rate_bucket SET tokens = LEAST(:capacity::float8, tokens + :count::int) WHERE name = :name::varchar

-- name: delete_buckets
-- Those that are full by now, like one that isn't there. An array, so that the inner statement runs once.
DELETE FROM oxpull_async_rate_bucket WHERE name = ANY(ARRAY(
    SELECT name FROM oxpull_async_rate_bucket
    WHERE full_at < STATEMENT_TIMESTAMP()
    ORDER BY name LIMIT :limit::int FOR UPDATE SKIP LOCKED
))
RETURNING name
