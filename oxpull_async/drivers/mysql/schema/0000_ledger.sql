-- The list of steps that were applied here, made before any step.
--
-- How these files are read: a line "-- statement" begins each statement, and what stands before the first one
-- is for people alone. Every statement may be repeated, since each commits at once. These orders go to the runner:
--   -- unless table: T      skip it where table T exists. IF NOT EXISTS alone would answer with a warning
--   -- unless index: T I    skip it where table T has an index I. MySQL has no IF NOT EXISTS for indexes
--
-- {uuid} stands for the type of ids: where django_ox_oxtask exists, the type of its column "id", with its character
-- set and collation if it has one (columns of different collations can't be compared, nor joined by a foreign key);
-- else "uuid" on MariaDB from 10.7 and "char(32)" on everything older and on MySQL.
-- json needs no such thing: MariaDB reads it as longtext COLLATE utf8mb4_bin CHECK (json_valid(...)) by itself.
-- Tables take the database's own character set, collation and engine, as Django's do.

-- statement
-- One row for each applied step.
-- unless table: oxpull_async_migration
CREATE TABLE IF NOT EXISTS oxpull_async_migration (
    name       varchar(128) NOT NULL PRIMARY KEY,
    applied_at datetime(6)  NOT NULL
);
