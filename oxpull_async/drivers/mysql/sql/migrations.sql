-- name: take_lock
-- Held by the session, whatever a statement commits. Names end at 64 characters, and count for the whole server.
SELECT GET_LOCK(CONCAT('oxpull_async.migrate.', LEFT(SHA2(DATABASE(), 256), 32)), 0)

-- name: release_lock
-- Closing the session would do as well, only later.
SELECT RELEASE_LOCK(CONCAT('oxpull_async.migrate.', LEFT(SHA2(DATABASE(), 256), 32)))

-- name: find_table
-- Whether the database has this table.
SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = :table_name

-- name: find_index
-- Whether the table has an index of this name.
SELECT 1 FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name = :table_name AND index_name = :index_name LIMIT 1

-- name: read_id_column
-- How ids are stored here, where a table of tasks exists already.
SELECT column_type, character_set_name, collation_name FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = 'django_ox_oxtask' AND column_name = 'id'

-- name: read_version
-- Says which server this is.
SELECT VERSION()

-- name: read_ledger
-- The steps that were applied here.
SELECT name FROM oxpull_async_migration

-- name: write_ledger
-- Another process may have applied the step before us.
INSERT IGNORE INTO oxpull_async_migration (name, applied_at) VALUES (:name, UTC_TIMESTAMP(6))
