-- Alerts as their watcher tells them, and when it last looked at each attempt (no fingerprint): the newest row of a trouble
-- counts.

CREATE TABLE IF NOT EXISTS alerts
(
    run_id      LowCardinality(String),
    attempt     UInt32,
    fingerprint String,
    began_ns    Int64,
    at_ns       Int64,
    phase       LowCardinality(String),
    body        String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(at_ns)
ORDER BY (run_id, attempt, fingerprint, began_ns)
