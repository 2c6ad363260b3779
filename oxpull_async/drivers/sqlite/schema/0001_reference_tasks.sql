-- The tables of django_ox, migrations 0001 to 0008, as Django makes them.
-- Their indexes on the task table are a step of their own, because the lean variant replaces them.

-- statement
-- A task row: one stored run of a task.
-- unless table: django_ox_oxtask
CREATE TABLE IF NOT EXISTS django_ox_oxtask (
    id                char(32)          NOT NULL PRIMARY KEY,
    task_path         varchar(255)      NOT NULL,
    args              text              NOT NULL CHECK ((JSON_VALID(args) OR args IS NULL)),
    kwargs            text              NOT NULL CHECK ((JSON_VALID(kwargs) OR kwargs IS NULL)),
    queue_name        varchar(128)      NOT NULL,
    priority          smallint          NOT NULL,
    takes_context     bool              NOT NULL,
    backend_name      varchar(128)      NOT NULL,
    status            varchar(10)       NOT NULL,
    run_after         datetime          NULL,
    attempts          smallint unsigned NOT NULL CHECK (attempts >= 0),
    max_attempts      smallint unsigned NOT NULL CHECK (max_attempts >= 0),
    return_value      text              NULL CHECK ((JSON_VALID(return_value) OR return_value IS NULL)),
    errors            text              NOT NULL CHECK ((JSON_VALID(errors) OR errors IS NULL)),
    worker_ids        text              NOT NULL CHECK ((JSON_VALID(worker_ids) OR worker_ids IS NULL)),
    enqueued_at       datetime          NOT NULL,
    started_at        datetime          NULL,
    last_attempted_at datetime          NULL,
    finished_at       datetime          NULL,
    locked_by         varchar(64)       NULL,
    locked_at         datetime          NULL,
    lease_epoch       bigint            NOT NULL,
    lease_expires_at  datetime          NULL
);

-- statement
-- A tick: one firing of a schedule, which its unique pair lets happen once.
-- unless table: django_ox_oxscheduletick
CREATE TABLE IF NOT EXISTS django_ox_oxscheduletick (
    id            integer      NOT NULL PRIMARY KEY AUTOINCREMENT,
    schedule_name varchar(128) NOT NULL,
    scheduled_for datetime     NOT NULL,
    created_at    datetime     NOT NULL,
    task_id       char(32)     NULL REFERENCES django_ox_oxtask (id) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT ox_tick_uniq UNIQUE (schedule_name, scheduled_for)
);

-- statement
-- Finds the ticks of a task row that is about to be deleted.
-- only with new table: django_ox_oxscheduletick
CREATE INDEX IF NOT EXISTS django_ox_oxscheduletick_task_id_a46f8bee ON django_ox_oxscheduletick (task_id);

-- statement
-- The single row that says when the stored schedules last changed.
-- unless table: django_ox_oxschedulechange
CREATE TABLE IF NOT EXISTS django_ox_oxschedulechange (
    id         smallint unsigned NOT NULL PRIMARY KEY CHECK (id >= 0),
    changed_at datetime          NOT NULL
);

-- statement
-- A schedule that is kept in the database instead of in settings.
-- unless table: django_ox_oxschedule
CREATE TABLE IF NOT EXISTS django_ox_oxschedule (
    id                        integer          NOT NULL PRIMARY KEY AUTOINCREMENT,
    name                      varchar(128)     NOT NULL UNIQUE,
    task_key                  varchar(128)     NOT NULL,
    "trigger"                 varchar(16)      NOT NULL,
    cron                      varchar(128)     NOT NULL,
    every_seconds             integer unsigned NULL CHECK (every_seconds >= 0),
    phase_seconds             integer unsigned NOT NULL CHECK (phase_seconds >= 0),
    arguments                 text             NOT NULL CHECK ((JSON_VALID(arguments) OR arguments IS NULL)),
    enabled                   bool             NOT NULL,
    start_time                datetime         NOT NULL,
    boundary_for              varchar(64)      NOT NULL,
    boundary_generation       integer unsigned NOT NULL CHECK (boundary_generation >= 0),
    end_time                  datetime         NULL,
    starting_deadline_seconds integer unsigned NULL CHECK (starting_deadline_seconds >= 0),
    created_at                datetime         NOT NULL,
    updated_at                datetime         NOT NULL,
    CONSTRAINT ox_schedule_one_trigger CHECK ((
        (every_seconds IS NULL AND "trigger" = 'cron')
        OR (cron = '' AND every_seconds IS NOT NULL AND "trigger" = 'interval')
    ))
);

