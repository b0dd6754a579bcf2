-- Numbers go on after 12, as unreleased versions of eventq had other schemas under 1 to 12.
--
-- Statements that write name the view of their schema. Each migration replaces it by its own, so
-- SQLite refuses the next write of a program that was open meanwhile and knows the old rules.
CREATE VIEW schema_13 AS SELECT 1;

-- This migration also derives `open_questions` from the events: store/sqlite/questions.py.
