-- The tables of oxpull, migrations 0001 to 0005, as Django makes them.

-- statement
-- A lock: the task row that holds a unique key, named without a foreign key so that it may outlive the row.
-- unless table: oxpull_oxpulluniquelock
CREATE TABLE IF NOT EXISTS oxpull_oxpulluniquelock (
    `key`      varchar(64)  NOT NULL PRIMARY KEY,
    task_id    {uuid}       NULL,
    task_path  varchar(255) NOT NULL,
    queue_name varchar(128) NOT NULL,
    created_at datetime(6)  NOT NULL
);

-- statement
-- A batch, with the callbacks it enqueues when it completes.
-- unless table: oxpull_oxpullbatch
CREATE TABLE IF NOT EXISTS oxpull_oxpullbatch (
    id                 {uuid}           NOT NULL PRIMARY KEY,
    name               varchar(128)     NOT NULL,
    status             varchar(10)      NOT NULL,
    total_count        integer unsigned NULL CHECK (total_count >= 0),
    on_complete_path   varchar(255)     NOT NULL,
    on_complete_args   json             NOT NULL,
    on_complete_kwargs json             NOT NULL,
    on_success_path    varchar(255)     NOT NULL,
    on_success_args    json             NOT NULL,
    on_success_kwargs  json             NOT NULL,
    failed_count       integer unsigned NULL CHECK (failed_count >= 0),
    callback_task_id   {uuid}           NULL,
    success_task_id    {uuid}           NULL,
    created_at         datetime(6)      NOT NULL,
    sealed_at          datetime(6)      NULL,
    completed_at       datetime(6)      NULL,
    INDEX oxpull_batch_sweep_idx (status, created_at)
);

-- statement
-- A member: that a task row belongs to a batch.
-- unless table: oxpull_oxpullbatchmember
CREATE TABLE IF NOT EXISTS oxpull_oxpullbatchmember (
    id         bigint      NOT NULL AUTO_INCREMENT PRIMARY KEY,
    task_id    {uuid}      NOT NULL,
    created_at datetime(6) NOT NULL,
    batch_id   {uuid}      NOT NULL,
    CONSTRAINT oxpull_batch_member_uniq UNIQUE (batch_id, task_id),
    CONSTRAINT oxpull_oxpullbatchme_batch_id_88349884_fk_oxpull_ox
        FOREIGN KEY (batch_id) REFERENCES oxpull_oxpullbatch (id)
);

-- statement
-- The current window of a rate limit, with what was used of it.
-- unless table: oxpull_oxpullratewindow
CREATE TABLE IF NOT EXISTS oxpull_oxpullratewindow (
    limit_name        varchar(128)     NOT NULL PRIMARY KEY,
    window_id         bigint           NOT NULL,
    window_started_at datetime(6)      NOT NULL,
    used              integer unsigned NOT NULL CHECK (used >= 0)
);

-- statement
-- The single row that says where the reconciler of workflows stopped.
-- unless table: oxpull_oxpullworkflowround
CREATE TABLE IF NOT EXISTS oxpull_oxpullworkflowround (
    id          smallint unsigned NOT NULL PRIMARY KEY CHECK (id >= 0),
    workflow_id {uuid}            NULL,
    version     bigint            NOT NULL
);

-- statement
-- How far a reconciler has read one workflow that is too large for a single pass.
-- unless table: oxpull_oxpullworkflowscan
CREATE TABLE IF NOT EXISTS oxpull_oxpullworkflowscan (
    workflow_id {uuid}      NOT NULL PRIMARY KEY,
    phase       varchar(10) NOT NULL,
    position    bigint      NOT NULL,
    edge_hwm    bigint      NULL,
    node_hwm    bigint      NULL,
    skipped     json        NOT NULL,
    version     bigint      NOT NULL
);

-- statement
-- A workflow: task rows that depend on one another.
-- unless table: oxpull_oxpullworkflow
CREATE TABLE IF NOT EXISTS oxpull_oxpullworkflow (
    id                  {uuid}           NOT NULL PRIMARY KEY,
    name                varchar(128)     NOT NULL,
    status              varchar(10)      NOT NULL,
    total_count         integer unsigned NULL CHECK (total_count >= 0),
    on_complete_path    varchar(255)     NOT NULL,
    on_complete_args    json             NOT NULL,
    on_complete_kwargs  json             NOT NULL,
    on_success_path     varchar(255)     NOT NULL,
    on_success_args     json             NOT NULL,
    on_success_kwargs   json             NOT NULL,
    failed_count        integer unsigned NULL CHECK (failed_count >= 0),
    cancelled_count     integer unsigned NULL CHECK (cancelled_count >= 0),
    callback_task_id    {uuid}           NULL,
    success_task_id     {uuid}           NULL,
    created_at          datetime(6)      NOT NULL,
    sealed_at           datetime(6)      NULL,
    completed_at        datetime(6)      NULL,
    generation          integer unsigned NOT NULL CHECK (generation >= 0),
    cancel_requested_at datetime(6)      NULL,
    metadata_retired_at datetime(6)      NULL,
    key_hash            varchar(64)      NULL UNIQUE,
    completions         json             NOT NULL,
    node_count          integer unsigned NOT NULL CHECK (node_count >= 0),
    INDEX oxpull_wf_sweep_idx (status, created_at)
);

-- statement
-- An edge: that one task row of a workflow waits for another.
-- unless table: oxpull_oxpullworkflowedge
CREATE TABLE IF NOT EXISTS oxpull_oxpullworkflowedge (
    id                 bigint      NOT NULL AUTO_INCREMENT PRIMARY KEY,
    upstream_task_id   {uuid}      NOT NULL,
    downstream_task_id {uuid}      NOT NULL,
    satisfied          bool        NOT NULL,
    created_at         datetime(6) NOT NULL,
    workflow_id        {uuid}      NOT NULL,
    CONSTRAINT oxpull_wf_edge_uniq UNIQUE (workflow_id, upstream_task_id, downstream_task_id),
    CONSTRAINT oxpull_oxpullworkflo_workflow_id_847abcd7_fk_oxpull_ox
        FOREIGN KEY (workflow_id) REFERENCES oxpull_oxpullworkflow (id),
    INDEX oxpull_wf_edge_down_idx (downstream_task_id, satisfied),
    INDEX oxpull_wf_edge_open_idx (workflow_id, satisfied, id),
    INDEX oxpull_wf_edge_up_idx (upstream_task_id)
);

-- statement
-- A node: a task row's place in a workflow, under a name of its own.
-- unless table: oxpull_oxpullworkflownode
CREATE TABLE IF NOT EXISTS oxpull_oxpullworkflownode (
    id                   bigint           NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name                 varchar(128)     NOT NULL,
    name_key             varchar(64)      NOT NULL,
    task_id              {uuid}           NOT NULL,
    created_at           datetime(6)      NOT NULL,
    outcome              varchar(10)      NULL,
    outcome_epoch        bigint           NULL,
    succeeded            bool             NOT NULL,
    cancel_cause         varchar(16)      NULL,
    cancelled_by_task_id {uuid}           NULL,
    cancelled_generation integer unsigned NULL CHECK (cancelled_generation >= 0),
    workflow_id          {uuid}           NOT NULL,
    CONSTRAINT oxpull_wf_node_name_uniq UNIQUE (workflow_id, name_key),
    CONSTRAINT oxpull_wf_node_task_uniq UNIQUE (task_id),
    CONSTRAINT oxpull_oxpullworkflo_workflow_id_43f5b022_fk_oxpull_ox
        FOREIGN KEY (workflow_id) REFERENCES oxpull_oxpullworkflow (id),
    INDEX oxpull_wf_node_open_idx (workflow_id, succeeded, id)
);
