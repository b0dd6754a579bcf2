-- Attempts that do not count make the waits between attempts longer, as those that count do.

ALTER TABLE unfinished ADD COLUMN uncounted INTEGER NOT NULL DEFAULT 0;
