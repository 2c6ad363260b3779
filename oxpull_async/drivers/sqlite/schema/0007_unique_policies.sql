-- Tables of this package for unique keys with terms of their own. No other program prunes them.

-- statement
-- A hold: the task row that has a key, and until when it has it at least.
-- unless table: oxpull_async_hold
CREATE TABLE IF NOT EXISTS oxpull_async_hold (
    key varchar(64) NOT NULL PRIMARY KEY,
    task_id char(32) NOT NULL,
    task_path varchar(255) NOT NULL,
    queue_name varchar(128) NOT NULL,
    created_at datetime NOT NULL,
    held_until datetime NULL
);

-- statement
-- A rerun: a task row to be, once the holder of its key has ended.
-- unless table: oxpull_async_rerun
CREATE TABLE IF NOT EXISTS oxpull_async_rerun (
    key varchar(64) NOT NULL PRIMARY KEY,
    holder_id char(32) NOT NULL,
    task_id char(32) NOT NULL,
    task_path varchar(255) NOT NULL,
    args text NOT NULL,
    kwargs text NOT NULL,
    queue_name varchar(128) NOT NULL,
    priority smallint NOT NULL,
    takes_context bool NOT NULL,
    backend_name varchar(128) NOT NULL,
    run_after datetime NULL,
    max_attempts smallint NOT NULL,
    enqueued_at datetime NOT NULL
);

-- statement
-- Finds the rerun that waits for a task.
CREATE INDEX IF NOT EXISTS oxpull_async_rerun_holder_idx ON oxpull_async_rerun (holder_id);
