-- The mesh of a rank's job, "pp=2,dp_shard=4,tp=8" with the slowest axis first. Empty: stored by an older version, and plain.

ALTER TABLE ranks ADD COLUMN IF NOT EXISTS mesh String;

-- What a span was measured with (telemetry/stages.py, SpanClock). 0 of what an older version stored.
ALTER TABLE spans ADD COLUMN IF NOT EXISTS clock UInt8 CODEC(ZSTD(1))
