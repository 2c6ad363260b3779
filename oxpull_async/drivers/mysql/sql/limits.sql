-- name: lock_windows
-- In the order of their names, as everybody here locks them. The time is the database's.
SELECT limit_name, window_id, window_started_at, used, UTC_TIMESTAMP(6)
FROM oxpull_oxpullratewindow WHERE limit_name IN :names ORDER BY limit_name FOR UPDATE

-- name: make_window
-- A competitor's row serves as well.
INSERT IGNORE INTO oxpull_oxpullratewindow (limit_name, window_id, window_started_at, used)
VALUES (:name, 0, UTC_TIMESTAMP(6), 0)

-- name: write_window
-- Under its row lock. A window that begins anew has a new id, by which Django processes tell it from the old one.
UPDATE oxpull_oxpullratewindow SET window_id = :window_id, window_started_at = :started_at, used = :used
WHERE limit_name = :name

-- name: uncount
-- Only in the window that it was counted in.
UPDATE oxpull_oxpullratewindow SET used = used - :count
WHERE limit_name = :name AND window_id = :window_id AND used >= :count

-- name: lock_buckets
-- In the order of their names, as everybody here locks them. The time is the database's.
SELECT name, tokens, as_of, UTC_TIMESTAMP(6)
FROM oxpull_async_rate_bucket WHERE name IN :names ORDER BY name FOR UPDATE

-- name: make_bucket
-- A competitor's row serves as well.
INSERT IGNORE INTO oxpull_async_rate_bucket (name, tokens, as_of, full_at) VALUES (:name, :tokens, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))

-- name: write_bucket
-- Under its row lock.
UPDATE oxpull_async_rate_bucket SET tokens = :tokens, as_of = :as_of, full_at = :full_at WHERE name = :name

-- name: refill
-- Tokens that weren't used, as far as there is room for them.
UPDATE oxpull_async_rate_bucket SET tokens = LEAST(:capacity, tokens + :count) WHERE name = :name

-- name: delete_buckets
-- Those that are full by now, like one that isn't there.
DELETE FROM oxpull_async_rate_bucket
WHERE full_at < UTC_TIMESTAMP(6) ORDER BY name LIMIT :limit
