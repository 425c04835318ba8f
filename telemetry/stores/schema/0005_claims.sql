-- Which collector may write a rank: whoever made the largest ballot. Merges keep that one row of a rank.

CREATE TABLE IF NOT EXISTS claims
(
    run_id      LowCardinality(String),
    attempt     UInt32,
    rank        UInt32,
    ballot      UInt64
)
ENGINE = ReplacingMergeTree(ballot)
ORDER BY (run_id, attempt, rank);

-- modern: the high-water marks of a run in a few rows a part, however many rows the run has
ALTER TABLE spans ADD PROJECTION IF NOT EXISTS high_water
(SELECT run_id, attempt, rank, max(seq) GROUP BY run_id, attempt, rank);

-- modern: for rows of an older schema, in the background
ALTER TABLE spans MATERIALIZE PROJECTION high_water;

-- modern: the same
ALTER TABLE samples ADD PROJECTION IF NOT EXISTS high_water
(SELECT run_id, attempt, rank, max(seq) GROUP BY run_id, attempt, rank);

-- modern: for rows of an older schema, in the background
ALTER TABLE samples MATERIALIZE PROJECTION high_water;

-- modern: the same
ALTER TABLE marks ADD PROJECTION IF NOT EXISTS high_water
(SELECT run_id, attempt, rank, max(seq) GROUP BY run_id, attempt, rank);

-- modern: for rows of an older schema, in the background
ALTER TABLE marks MATERIALIZE PROJECTION high_water
