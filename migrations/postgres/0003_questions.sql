-- Questions that nobody has answered yet, as events of the types question and approval.
CREATE TABLE eventq.open_questions (
    bucket    smallint NOT NULL,
    thread_id bigint NOT NULL,
    event_id  bigint NOT NULL,
    PRIMARY KEY (bucket, thread_id, event_id)
);
