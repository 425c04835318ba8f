-- What the agents took down of ranks that stood still or died: the newest text of each kind counts.

CREATE TABLE IF NOT EXISTS evidence
(
    run_id      LowCardinality(String),
    attempt     UInt32,
    rank        UInt32,
    at_ns       Int64,
    kind        LowCardinality(String),
    body        String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(at_ns)
ORDER BY (run_id, attempt, rank, kind);
