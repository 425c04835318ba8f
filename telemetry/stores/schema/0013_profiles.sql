-- Profiles on demand. Requests are written by collectors, states and parts by agents. The newest state of a rank counts. A part
-- that is sent twice is the same part.

CREATE TABLE IF NOT EXISTS profile_requests
(
    run_id      LowCardinality(String),
    attempt     UInt32,
    rank        UInt32,
    profile_id  String,
    at_ns       Int64,
    steps       UInt32,
    seconds     UInt32,
    finding     String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
ORDER BY (run_id, attempt, at_ns, profile_id, rank);

CREATE TABLE IF NOT EXISTS profile_states
(
    run_id      LowCardinality(String),
    attempt     UInt32,
    rank        UInt32,
    profile_id  String,
    at_ns       Int64,
    phase       LowCardinality(String),
    body        String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(at_ns)
ORDER BY (run_id, attempt, profile_id, rank);

-- The content is gzip in base64.
CREATE TABLE IF NOT EXISTS profile_parts
(
    run_id      LowCardinality(String),
    attempt     UInt32,
    rank        UInt32,
    profile_id  String,
    part        UInt32,
    content     String CODEC(ZSTD(1)),
    inserted_on Date DEFAULT today()
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(inserted_on)
ORDER BY (run_id, attempt, profile_id, rank, part);

-- modern: what was merged stays on the disk for eight minutes, see 0010
ALTER TABLE profile_requests MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE profile_states MODIFY SETTING old_parts_lifetime = 480;

-- modern: the same
ALTER TABLE profile_parts MODIFY SETTING old_parts_lifetime = 480
