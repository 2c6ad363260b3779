-- The list of steps that were applied here, made before any step.
--
-- How these files are read: a line "-- statement" begins each statement, and what stands before the first one
-- is for people alone. Every statement may be repeated. These orders go to the runner:
--   -- unless table: T           skip it where a table T is in sight. IF NOT EXISTS alone would look only in the
--                                first schema of the search path, and make a second table in front of the real one
--   -- only with new table: T    run it only if this run created table T. A table found in place is adopted as it is,
--                                and CREATE INDEX would lock it even to find that there is nothing to do
--   -- outside transaction       the server refuses it inside a transaction, so it runs alone, after the others

-- statement
-- One row for each applied step.
-- unless table: oxpull_async_migration
CREATE TABLE IF NOT EXISTS oxpull_async_migration (
    name       varchar(128) NOT NULL PRIMARY KEY,
    applied_at timestamptz  NOT NULL
);
