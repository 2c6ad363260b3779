-- Rate limits that fill evenly, and queues that are paused.

-- statement
-- How many starts a limit, or one key of it, allows; a bucket that isn't there is full.
-- unless table: oxpull_async_rate_bucket
CREATE TABLE IF NOT EXISTS oxpull_async_rate_bucket (
    name    varchar(128) NOT NULL PRIMARY KEY,
    tokens  double       NOT NULL,
    as_of   datetime     NOT NULL,
    full_at datetime     NOT NULL
);

-- statement
-- A queue of which nothing is claimed.
-- unless table: oxpull_async_paused_queue
CREATE TABLE IF NOT EXISTS oxpull_async_paused_queue (
    queue_name varchar(128) NOT NULL PRIMARY KEY,
    paused_at  datetime     NOT NULL
);
