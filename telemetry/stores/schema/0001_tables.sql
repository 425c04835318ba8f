-- One insert is one block of one partition (its date of insertion), so it is stored whole or not at all:
-- that makes max(seq) the ledger of what is stored.

CREATE TABLE IF NOT EXISTS spans
(
    run_id      LowCardinality(String),
    attempt     UInt32 CODEC(ZSTD(1)),
    rank        UInt32 CODEC(ZSTD(1)),
    seq         UInt64 CODEC(Delta, ZSTD(1)),
    stage       UInt8 CODEC(ZSTD(1)),
    stream      UInt8 CODEC(ZSTD(1)),
    step        UInt32 CODEC(ZSTD(1)),
    microbatch  Int16 CODEC(ZSTD(1)),
    chunk       Int16 CODEC(ZSTD(1)),
    peer        Int32 CODEC(ZSTD(1)),
    op_seq      UInt32 CODEC(Delta, ZSTD(1)),
    start_ns    Int64 CODEC(Delta, ZSTD(1)),
    duration_ns Int64 CODEC(T64, ZSTD(1)),
    cpu_ns      Int64 CODEC(T64, ZSTD(1)),
    issue_ns    Int64 CODEC(Delta, ZSTD(1)),
    size_bytes  UInt64 CODEC(T64, ZSTD(1)),
    inserted_on Date DEFAULT today()
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, stage, step, rank, start_ns);

CREATE TABLE IF NOT EXISTS marks
(
    run_id      LowCardinality(String),
    attempt     UInt32,
    rank        UInt32,
    seq         UInt64,
    step        UInt32,
    at_ns       Int64 CODEC(Delta, ZSTD(1)),
    name        LowCardinality(String),
    text        String CODEC(ZSTD(1)),
    inserted_on Date DEFAULT today()
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, at_ns, rank);

CREATE TABLE IF NOT EXISTS samples
(
    run_id      LowCardinality(String),
    attempt     UInt32,
    rank        UInt32,
    seq         UInt64 CODEC(Delta, ZSTD(1)),
    step        UInt32 CODEC(Delta, ZSTD(1)),
    at_ns       Int64 CODEC(Delta, ZSTD(1)),
    metric      LowCardinality(String),
    value       Float64 CODEC(ZSTD(1)),
    inserted_on Date DEFAULT today()
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, metric, step, rank);

-- The newest row of a rank counts; merges drop the others.

CREATE TABLE IF NOT EXISTS ranks
(
    run_id      LowCardinality(String),
    attempt     UInt32,
    rank        UInt32,
    host        LowCardinality(String),
    local_rank  UInt32,
    pid         UInt32,
    dp_size     UInt32,
    pp_size     UInt32,
    tp_size     UInt32,
    started_ns  Int64,
    meta        String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
ORDER BY (run_id, attempt, rank);

CREATE TABLE IF NOT EXISTS heartbeats
(
    run_id      LowCardinality(String),
    attempt     UInt32,
    rank        UInt32,
    at_ns       Int64,
    beat_ns     Int64,
    step        UInt32,
    stage       UInt8,
    alive       UInt8,
    ended       UInt8,
    recorded    UInt64,
    dropped     UInt64
)
ENGINE = ReplacingMergeTree
ORDER BY (run_id, attempt, rank);
