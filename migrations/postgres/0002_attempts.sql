-- Attempts that do not count make the waits between attempts longer, as those that count do.
ALTER TABLE eventq.unfinished ADD COLUMN uncounted bigint NOT NULL DEFAULT 0;

-- Subscriptions with the defaults of before have those of now, so that to subscribe again with the
-- defaults changes nothing.
UPDATE eventq.consumers SET max_attempts = 21 WHERE max_attempts = 5;
UPDATE eventq.consumers SET backoff_most_ms = 300000 WHERE backoff_ms = 1000 AND backoff_most_ms = 600000;
