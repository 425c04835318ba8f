-- The findings log: a row for each change of a finding, from the watcher, and a row for each action of a person. Rows are only
-- added. A row that is sent twice is the same row. Both are kept for a year unless RANKSCOPE_FINDINGS_DAYS says otherwise.

CREATE TABLE IF NOT EXISTS findings
(
    run_id       LowCardinality(String),
    attempt      UInt32,
    fingerprint  String,
    raised_ns    Int64,
    at_ns        Int64,
    state        LowCardinality(String),
    kind         LowCardinality(String),
    severity     LowCardinality(String),
    onset_step   Int64,
    onset_ns     Int64,
    onset_exact  UInt8,
    hosts        String CODEC(ZSTD(1)),
    ranks        String CODEC(ZSTD(1)),
    device       String CODEC(ZSTD(1)),
    stage        LowCardinality(String),
    summary      String CODEC(ZSTD(1)),
    next_step    String CODEC(ZSTD(1)),
    seconds_lost Float64,
    basis        LowCardinality(String),
    cause        String,
    inserted_on  Date DEFAULT today()
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, fingerprint, raised_ns, at_ns, state);

CREATE TABLE IF NOT EXISTS finding_actions
(
    run_id       LowCardinality(String),
    attempt      UInt32,
    fingerprint  String,
    raised_ns    Int64,
    at_ns        Int64,
    action_id    String,
    action       LowCardinality(String),
    who          String CODEC(ZSTD(1)),
    text         String CODEC(ZSTD(1)),
    until_ns     Int64,
    inserted_on  Date DEFAULT today()
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, fingerprint, raised_ns, at_ns, action_id);

-- modern: what was merged stays on the disk for eight minutes, see 0010; whole parts expire, see retention.py
ALTER TABLE findings
MODIFY SETTING old_parts_lifetime = 480, ttl_only_drop_parts = 1, materialize_ttl_recalculate_only = 1;

-- modern: the same
ALTER TABLE finding_actions
MODIFY SETTING old_parts_lifetime = 480, ttl_only_drop_parts = 1, materialize_ttl_recalculate_only = 1;

-- modern: a year
ALTER TABLE findings MODIFY TTL inserted_on + toIntervalDay(365);

-- modern: the same
ALTER TABLE finding_actions MODIFY TTL inserted_on + toIntervalDay(365)
