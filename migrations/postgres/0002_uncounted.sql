-- Attempts that do not count make the waits between attempts longer, as those that count do.

ALTER TABLE eventq.unfinished ADD COLUMN uncounted bigint NOT NULL DEFAULT 0;
