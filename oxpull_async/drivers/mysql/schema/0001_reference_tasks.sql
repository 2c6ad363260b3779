-- The tables of django_ox, migrations 0001 to 0008, as Django makes them.
-- There is no lean variant here: without partial indexes a leaner one would still hold every settled row,
-- and so write as much as the reference's own.

-- statement
-- A task row: one stored run of a task.
-- unless table: django_ox_oxtask
CREATE TABLE IF NOT EXISTS django_ox_oxtask (
    id                {uuid}            NOT NULL PRIMARY KEY,
    task_path         varchar(255)      NOT NULL,
    args              json              NOT NULL,
    kwargs            json              NOT NULL,
    queue_name        varchar(128)      NOT NULL,
    priority          smallint          NOT NULL,
    takes_context     bool              NOT NULL,
    backend_name      varchar(128)      NOT NULL,
    status            varchar(10)       NOT NULL,
    run_after         datetime(6)       NULL,
    attempts          smallint unsigned NOT NULL CHECK (attempts >= 0),
    max_attempts      smallint unsigned NOT NULL CHECK (max_attempts >= 0),
    return_value      json              NULL,
    errors            json              NOT NULL,
    worker_ids        json              NOT NULL,
    enqueued_at       datetime(6)       NOT NULL,
    started_at        datetime(6)       NULL,
    last_attempted_at datetime(6)       NULL,
    finished_at       datetime(6)       NULL,
    locked_by         varchar(64)       NULL,
    locked_at         datetime(6)       NULL,
    lease_epoch       bigint            NOT NULL,
    lease_expires_at  datetime(6)       NULL,
    INDEX ox_reaper_idx (status, locked_at),
    INDEX ox_dequeue_idx (status, priority DESC, enqueued_at),
    INDEX ox_dequeue_queue_idx (status, queue_name, priority DESC, enqueued_at),
    INDEX ox_reaper_expiry_idx (status, lease_expires_at)
);

-- statement
-- A tick: one firing of a schedule, which its unique pair lets happen once.
-- unless table: django_ox_oxscheduletick
CREATE TABLE IF NOT EXISTS django_ox_oxscheduletick (
    id            bigint       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    schedule_name varchar(128) NOT NULL,
    scheduled_for datetime(6)  NOT NULL,
    created_at    datetime(6)  NOT NULL,
    task_id       {uuid}       NULL,
    CONSTRAINT ox_tick_uniq UNIQUE (schedule_name, scheduled_for),
    CONSTRAINT django_ox_oxscheduletick_task_id_a46f8bee_fk_django_ox_oxtask_id
        FOREIGN KEY (task_id) REFERENCES django_ox_oxtask (id)
);

-- statement
-- The single row that says when the stored schedules last changed.
-- unless table: django_ox_oxschedulechange
CREATE TABLE IF NOT EXISTS django_ox_oxschedulechange (
    id         smallint unsigned NOT NULL PRIMARY KEY CHECK (id >= 0),
    changed_at datetime(6)       NOT NULL
);

-- statement
-- A schedule that is kept in the database instead of in settings.
-- unless table: django_ox_oxschedule
CREATE TABLE IF NOT EXISTS django_ox_oxschedule (
    id                        bigint           NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name                      varchar(128)     NOT NULL UNIQUE,
    task_key                  varchar(128)     NOT NULL,
    `trigger`                 varchar(16)      NOT NULL,
    cron                      varchar(128)     NOT NULL,
    every_seconds             integer unsigned NULL CHECK (every_seconds >= 0),
    phase_seconds             integer unsigned NOT NULL CHECK (phase_seconds >= 0),
    arguments                 json             NOT NULL,
    enabled                   bool             NOT NULL,
    start_time                datetime(6)      NOT NULL,
    boundary_for              varchar(64)      NOT NULL,
    boundary_generation       integer unsigned NOT NULL CHECK (boundary_generation >= 0),
    end_time                  datetime(6)      NULL,
    starting_deadline_seconds integer unsigned NULL CHECK (starting_deadline_seconds >= 0),
    created_at                datetime(6)      NOT NULL,
    updated_at                datetime(6)      NOT NULL,
    CONSTRAINT ox_schedule_one_trigger CHECK (
        (every_seconds IS NULL AND `trigger` = 'cron')
        OR (cron = '' AND every_seconds IS NOT NULL AND `trigger` = 'interval')
    )
);
