-- How hosts' clocks lie apart, window by window, as the collector estimates it: the newest estimate of a window counts.
-- Raw stamps stay as they are. Times are what the host's own clock reads; a bound of -1: refused.

CREATE TABLE IF NOT EXISTS host_clocks
(
    run_id       LowCardinality(String),
    attempt      UInt32,
    host         LowCardinality(String),
    reference    LowCardinality(String),
    first_step   UInt32,
    last_step    UInt32,
    first_ns     Int64,
    last_ns      Int64,
    offset_ns    Int64,
    drift_ppm    Float64,
    bound_ns     Int64,
    num_events   UInt32,
    method       LowCardinality(String),
    reason       String,
    estimated_ns Int64
)
ENGINE = ReplacingMergeTree(estimated_ns)
ORDER BY (run_id, attempt, first_step, host, first_ns)
