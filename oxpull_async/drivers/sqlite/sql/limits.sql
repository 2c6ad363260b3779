-- name: peek
-- The heads of all lines, as a claim reads them.
SELECT priority, enqueued_at FROM ({{heads}}) ORDER BY priority DESC, enqueued_at

-- name: lock_windows
-- The transaction holds the file's write lock, and these with it. The time is the host's, one for all processes.
SELECT limit_name, window_id, window_started_at, used, {{database_now}}
FROM oxpull_oxpullratewindow WHERE limit_name IN (SELECT value FROM json_each(:names))

-- name: make_window
-- A competitor's row serves as well.
INSERT INTO oxpull_oxpullratewindow (limit_name, window_id, window_started_at, used)
VALUES (:name, 0, {{database_now}}, 0)
ON CONFLICT (limit_name) DO NOTHING

-- name: write_window
-- A window that begins anew has a new id, by which Django processes tell it from the old one.
UPDATE oxpull_oxpullratewindow
SET window_id = :window_id, window_started_at = :started_at, used = :used
WHERE limit_name = :name

-- name: uncount
-- Only in the window that it was counted in.
UPDATE oxpull_oxpullratewindow SET used = used - :count
WHERE limit_name = :name AND window_id = :window_id AND used >= :count

-- name: lock_buckets
-- The transaction holds the file's write lock, and these with it. The time is the host's, one for all processes.
SELECT name, tokens, as_of, {{database_now}}
FROM oxpull_async_rate_bucket WHERE name IN (SELECT value FROM json_each(:names))

-- name: make_bucket
-- A competitor's row serves as well.
INSERT INTO oxpull_async_rate_bucket (name, tokens, as_of, full_at) VALUES (:name, :tokens, {{database_now}}, {{database_now}})
ON CONFLICT (name) DO NOTHING

-- name: write_bucket
-- What is in it from now on.
UPDATE oxpull_async_rate_bucket SET tokens = :tokens, as_of = :as_of, full_at = :full_at WHERE name = :name

-- name: refill
-- Tokens that weren't used, as far as there is room for them.
UPDATE oxpull_async_rate_bucket SET tokens = min(:capacity, tokens + :count) WHERE name = :name

-- name: delete_buckets
-- Those that are full by now, like one that isn't there.
DELETE FROM oxpull_async_rate_bucket WHERE name IN (
    SELECT name FROM oxpull_async_rate_bucket WHERE full_at < {{database_now}} ORDER BY name LIMIT :limit
)
