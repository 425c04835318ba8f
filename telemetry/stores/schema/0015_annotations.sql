-- Tags and notes of runs, and saved views: a row for each that a person sets or removes. Rows are only added. The newest row of a
-- tag or view is valid. A view without a run is of all runs.

CREATE TABLE IF NOT EXISTS annotations
(
    run_id        LowCardinality(String),
    kind          LowCardinality(String),
    name          String,
    at_ns         Int64,
    annotation_id String,
    edit          LowCardinality(String),
    who           String CODEC(ZSTD(1)),
    text          String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
ORDER BY (run_id, kind, name, at_ns, annotation_id);

-- modern: what was merged stays on the disk for eight minutes, see 0010
ALTER TABLE annotations MODIFY SETTING old_parts_lifetime = 480
