-- The list of steps that were applied here, made before any step.
--
-- How these files are read: a line "-- statement" begins each statement, and what stands before the first one
-- is for people alone. Every statement may be repeated. These orders go to the runner:
--   -- unless table: T           skip it where table T exists
--   -- only with new table: T    run it only if this run created table T: a table found in place is adopted as it is

-- statement
-- One row for each applied step.
-- unless table: oxpull_async_migration
CREATE TABLE IF NOT EXISTS oxpull_async_migration (
    name       varchar(128) NOT NULL PRIMARY KEY,
    applied_at datetime     NOT NULL
);
