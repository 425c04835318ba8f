-- Which folder a record came from: when that folder was first opened. Records are numbered per folder, so the largest
-- stored seq counts per folder, too. 0: the sender named no folder. -1: stored by an older version, or without a collector.

ALTER TABLE spans ADD COLUMN IF NOT EXISTS opened_ns Int64 DEFAULT -1 CODEC(Delta, ZSTD(1));

ALTER TABLE marks ADD COLUMN IF NOT EXISTS opened_ns Int64 DEFAULT -1 CODEC(Delta, ZSTD(1));

ALTER TABLE samples ADD COLUMN IF NOT EXISTS opened_ns Int64 DEFAULT -1 CODEC(Delta, ZSTD(1));

-- modern: replaces the projection of 0005, which does not tell folders apart
ALTER TABLE spans DROP PROJECTION IF EXISTS high_water;

-- modern: the same
ALTER TABLE marks DROP PROJECTION IF EXISTS high_water;

-- modern: the same
ALTER TABLE samples DROP PROJECTION IF EXISTS high_water;

-- modern: the high-water marks of a run in a few rows a part, however many rows the run has
ALTER TABLE spans ADD PROJECTION IF NOT EXISTS opening_water
(SELECT run_id, attempt, rank, opened_ns, max(seq) GROUP BY run_id, attempt, rank, opened_ns);

-- modern: the same
ALTER TABLE marks ADD PROJECTION IF NOT EXISTS opening_water
(SELECT run_id, attempt, rank, opened_ns, max(seq) GROUP BY run_id, attempt, rank, opened_ns);

-- modern: the same
ALTER TABLE samples ADD PROJECTION IF NOT EXISTS opening_water
(SELECT run_id, attempt, rank, opened_ns, max(seq) GROUP BY run_id, attempt, rank, opened_ns);

-- modern: for rows of an older schema, in the background
ALTER TABLE spans MATERIALIZE PROJECTION opening_water;

-- modern: the same
ALTER TABLE marks MATERIALIZE PROJECTION opening_water;

-- modern: the same
ALTER TABLE samples MATERIALIZE PROJECTION opening_water
