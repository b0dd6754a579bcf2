-- Attempts that do not count make the waits between attempts longer, as those that count do.
ALTER TABLE unfinished ADD COLUMN uncounted INTEGER NOT NULL DEFAULT 0;

-- Subscriptions with the defaults of before have those of now, so that to subscribe again with the
-- defaults changes nothing. Handlers that pop, and have no directory, were subscribed under the name
-- `thread`: they waited as these do, whatever was stored.
UPDATE subscription_state SET max_attempts = 21 WHERE max_attempts = 5 AND consumer_id IN (
    SELECT consumer_id FROM consumer_settings WHERE kind <> 'loop' OR directory IS NOT NULL
);
UPDATE consumer_settings SET backoff_most_ms = 300000
WHERE backoff_ms = 1000 AND backoff_most_ms = 600000 AND (kind <> 'loop' OR directory IS NOT NULL);
UPDATE consumer_settings SET backoff_ms = 500, backoff_most_ms = 60000
WHERE backoff_ms = 1000 AND backoff_most_ms = 600000;
