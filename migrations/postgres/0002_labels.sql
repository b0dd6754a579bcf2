-- Which workers run the handler of a consumer: those with this label; NULL, those without any.
ALTER TABLE eventq.consumers ADD COLUMN label text COLLATE "C";
