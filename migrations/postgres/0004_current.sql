-- Numbers go on after those of unreleased versions, whose tables lack one of these columns each.
ALTER TABLE eventq.unfinished ADD COLUMN IF NOT EXISTS uncounted bigint NOT NULL DEFAULT 0;
ALTER TABLE eventq.consumers ADD COLUMN IF NOT EXISTS label text COLLATE "C";

-- Statements that write name the column of their schema. Each migration renames it in both tables,
-- so the server refuses the next write of a program that was open meanwhile and knows the old rules.
ALTER TABLE eventq.counters ADD COLUMN schema_4 boolean;
ALTER TABLE eventq.consumers ADD COLUMN schema_4 boolean;

-- This migration also derives `open_questions` from the events: store/postgres/questions.py.
