-- Tables of this package alone.

-- statement
-- Who does a job that one process at a time should do, and until when.
-- unless table: oxpull_async_leader
CREATE TABLE IF NOT EXISTS oxpull_async_leader (
    role       varchar(64) NOT NULL PRIMARY KEY,
    holder     varchar(64) NOT NULL,
    expires_at datetime(6) NOT NULL
);
