-- What the agents' samplers read on hosts, and what happened there. A row sent twice is the same row: merges drop it, and
-- no query counts it twice.

CREATE TABLE IF NOT EXISTS host_samples
(
    run_id      LowCardinality(String),
    attempt     UInt32,
    host        LowCardinality(String),
    device      LowCardinality(String),
    metric      LowCardinality(String),
    at_ns       Int64 CODEC(Delta, ZSTD(1)),
    value       Float64 CODEC(ZSTD(1)),
    inserted_on Date DEFAULT today()
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, metric, host, device, at_ns);

CREATE TABLE IF NOT EXISTS host_events
(
    run_id      LowCardinality(String),
    attempt     UInt32,
    host        LowCardinality(String),
    device      LowCardinality(String),
    at_ns       Int64,
    name        LowCardinality(String),
    text        String CODEC(ZSTD(1)),
    inserted_on Date DEFAULT today()
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, at_ns, host, device, name, text)
