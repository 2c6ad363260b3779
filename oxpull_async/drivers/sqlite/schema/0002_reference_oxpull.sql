-- The tables of oxpull, migrations 0001 to 0005, as Django makes them.

-- statement
-- A lock: the task row that holds a unique key, named without a foreign key so that it may outlive the row.
-- unless table: oxpull_oxpulluniquelock
CREATE TABLE IF NOT EXISTS oxpull_oxpulluniquelock (
    "key"      varchar(64)  NOT NULL PRIMARY KEY,
    task_id    char(32)     NULL,
    task_path  varchar(255) NOT NULL,
    queue_name varchar(128) NOT NULL,
    created_at datetime     NOT NULL
);

-- statement
-- A batch, with the callbacks it enqueues when it completes.
-- unless table: oxpull_oxpullbatch
CREATE TABLE IF NOT EXISTS oxpull_oxpullbatch (
    id                 char(32)         NOT NULL PRIMARY KEY,
    name               varchar(128)     NOT NULL,
    status             varchar(10)      NOT NULL,
    total_count        integer unsigned NULL CHECK (total_count >= 0),
    on_complete_path   varchar(255)     NOT NULL,
    on_complete_args   text             NOT NULL CHECK ((JSON_VALID(on_complete_args) OR on_complete_args IS NULL)),
    on_complete_kwargs text             NOT NULL CHECK ((JSON_VALID(on_complete_kwargs) OR on_complete_kwargs IS NULL)),
    on_success_path    varchar(255)     NOT NULL,
    on_success_args    text             NOT NULL CHECK ((JSON_VALID(on_success_args) OR on_success_args IS NULL)),
    on_success_kwargs  text             NOT NULL CHECK ((JSON_VALID(on_success_kwargs) OR on_success_kwargs IS NULL)),
    failed_count       integer unsigned NULL CHECK (failed_count >= 0),
    callback_task_id   char(32)         NULL,
    success_task_id    char(32)         NULL,
    created_at         datetime         NOT NULL,
    sealed_at          datetime         NULL,
    completed_at       datetime         NULL
);

-- statement
-- Finds sealed batches, oldest first.
-- only with new table: oxpull_oxpullbatch
CREATE INDEX IF NOT EXISTS oxpull_batch_sweep_idx ON oxpull_oxpullbatch (status, created_at);

-- statement
-- A member: that a task row belongs to a batch.
-- unless table: oxpull_oxpullbatchmember
CREATE TABLE IF NOT EXISTS oxpull_oxpullbatchmember (
    id         integer  NOT NULL PRIMARY KEY AUTOINCREMENT,
    task_id    char(32) NOT NULL,
    created_at datetime NOT NULL,
    batch_id   char(32) NOT NULL REFERENCES oxpull_oxpullbatch (id) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT oxpull_batch_member_uniq UNIQUE (batch_id, task_id)
);

-- statement
-- The index that Django gives to every foreign key, here beside a unique constraint that begins alike.
-- only with new table: oxpull_oxpullbatchmember
CREATE INDEX IF NOT EXISTS oxpull_oxpullbatchmember_batch_id_88349884 ON oxpull_oxpullbatchmember (batch_id);

-- statement
-- The current window of a rate limit, with what was used of it.
-- unless table: oxpull_oxpullratewindow
CREATE TABLE IF NOT EXISTS oxpull_oxpullratewindow (
    limit_name        varchar(128)     NOT NULL PRIMARY KEY,
    window_id         bigint           NOT NULL,
    window_started_at datetime         NOT NULL,
    used              integer unsigned NOT NULL CHECK (used >= 0)
);

-- statement
-- The single row that says where the reconciler of workflows stopped.
-- unless table: oxpull_oxpullworkflowround
CREATE TABLE IF NOT EXISTS oxpull_oxpullworkflowround (
    id          smallint unsigned NOT NULL PRIMARY KEY CHECK (id >= 0),
    workflow_id char(32)          NULL,
    version     bigint            NOT NULL
);

-- statement
-- How far a reconciler has read one workflow that is too large for a single pass.
-- unless table: oxpull_oxpullworkflowscan
CREATE TABLE IF NOT EXISTS oxpull_oxpullworkflowscan (
    workflow_id char(32)    NOT NULL PRIMARY KEY,
    phase       varchar(10) NOT NULL,
    "position"  bigint      NOT NULL,
    edge_hwm    bigint      NULL,
    node_hwm    bigint      NULL,
    skipped     text        NOT NULL CHECK ((JSON_VALID(skipped) OR skipped IS NULL)),
    version     bigint      NOT NULL
);

-- statement
-- A workflow: task rows that depend on one another.
-- unless table: oxpull_oxpullworkflow
CREATE TABLE IF NOT EXISTS oxpull_oxpullworkflow (
    id                  char(32)         NOT NULL PRIMARY KEY,
    name                varchar(128)     NOT NULL,
    status              varchar(10)      NOT NULL,
    total_count         integer unsigned NULL CHECK (total_count >= 0),
    on_complete_path    varchar(255)     NOT NULL,
    on_complete_args    text             NOT NULL CHECK ((JSON_VALID(on_complete_args) OR on_complete_args IS NULL)),
    on_complete_kwargs  text             NOT NULL CHECK ((JSON_VALID(on_complete_kwargs) OR on_complete_kwargs IS NULL)),
    on_success_path     varchar(255)     NOT NULL,
    on_success_args     text             NOT NULL CHECK ((JSON_VALID(on_success_args) OR on_success_args IS NULL)),
    on_success_kwargs   text             NOT NULL CHECK ((JSON_VALID(on_success_kwargs) OR on_success_kwargs IS NULL)),
    failed_count        integer unsigned NULL CHECK (failed_count >= 0),
    cancelled_count     integer unsigned NULL CHECK (cancelled_count >= 0),
    callback_task_id    char(32)         NULL,
    success_task_id     char(32)         NULL,
    created_at          datetime         NOT NULL,
    sealed_at           datetime         NULL,
    completed_at        datetime         NULL,
    generation          integer unsigned NOT NULL CHECK (generation >= 0),
    cancel_requested_at datetime         NULL,
    metadata_retired_at datetime         NULL,
    key_hash            varchar(64)      NULL UNIQUE,
    completions         text             NOT NULL CHECK ((JSON_VALID(completions) OR completions IS NULL)),
    node_count          integer unsigned NOT NULL CHECK (node_count >= 0)
);

-- statement
-- Finds sealed workflows, oldest first.
-- only with new table: oxpull_oxpullworkflow
CREATE INDEX IF NOT EXISTS oxpull_wf_sweep_idx ON oxpull_oxpullworkflow (status, created_at);

-- statement
-- An edge: that one task row of a workflow waits for another.
-- unless table: oxpull_oxpullworkflowedge
CREATE TABLE IF NOT EXISTS oxpull_oxpullworkflowedge (
    id                 integer  NOT NULL PRIMARY KEY AUTOINCREMENT,
    upstream_task_id   char(32) NOT NULL,
    downstream_task_id char(32) NOT NULL,
    satisfied          bool     NOT NULL,
    created_at         datetime NOT NULL,
    workflow_id        char(32) NOT NULL REFERENCES oxpull_oxpullworkflow (id) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT oxpull_wf_edge_uniq UNIQUE (workflow_id, upstream_task_id, downstream_task_id)
);

-- statement
-- Finds what a waiting task row still waits for.
-- only with new table: oxpull_oxpullworkflowedge
CREATE INDEX IF NOT EXISTS oxpull_wf_edge_down_idx ON oxpull_oxpullworkflowedge (downstream_task_id, satisfied);

-- statement
-- Finds the unsatisfied edges of a workflow.
-- only with new table: oxpull_oxpullworkflowedge
CREATE INDEX IF NOT EXISTS oxpull_wf_edge_open_idx ON oxpull_oxpullworkflowedge (workflow_id, satisfied, id);

-- statement
-- Finds what waits for a task row that has just succeeded.
-- only with new table: oxpull_oxpullworkflowedge
CREATE INDEX IF NOT EXISTS oxpull_wf_edge_up_idx ON oxpull_oxpullworkflowedge (upstream_task_id);

-- statement
-- A node: a task row's place in a workflow, under a name of its own.
-- unless table: oxpull_oxpullworkflownode
CREATE TABLE IF NOT EXISTS oxpull_oxpullworkflownode (
    id                   integer          NOT NULL PRIMARY KEY AUTOINCREMENT,
    name                 varchar(128)     NOT NULL,
    name_key             varchar(64)      NOT NULL,
    task_id              char(32)         NOT NULL,
    created_at           datetime         NOT NULL,
    outcome              varchar(10)      NULL,
    outcome_epoch        bigint           NULL,
    succeeded            bool             NOT NULL,
    cancel_cause         varchar(16)      NULL,
    cancelled_by_task_id char(32)         NULL,
    cancelled_generation integer unsigned NULL CHECK (cancelled_generation >= 0),
    workflow_id          char(32)         NOT NULL REFERENCES oxpull_oxpullworkflow (id) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT oxpull_wf_node_name_uniq UNIQUE (workflow_id, name_key),
    CONSTRAINT oxpull_wf_node_task_uniq UNIQUE (task_id)
);

-- statement
-- Finds the nodes of a workflow that have not succeeded.
-- only with new table: oxpull_oxpullworkflownode
CREATE INDEX IF NOT EXISTS oxpull_wf_node_open_idx ON oxpull_oxpullworkflownode (workflow_id, succeeded, id);
