-- When the rank's folder was first opened: tells a restart in place from another job of the same name. 0: not known.

ALTER TABLE ranks ADD COLUMN IF NOT EXISTS opened_ns Int64
