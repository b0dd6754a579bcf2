#!/bin/sh
# A consumer's loop: pop, process, ack by popping again, until nothing is left.
# eventq sets EVENTQ_THREAD and EVENTQ_CONSUMER, which stand for --thread and --consumer.
last=$EVENTQ_LAST_ACKED_ID
while events=$(eventq pop --last-event-id "$last") && [ -n "$events" ]; do
    printf '%s\n' "$events" | while IFS= read -r event; do
        echo "$EVENTQ_CONSUMER processed $event"
    done
    last=$(printf '%s\n' "$events" | sed -n '$s/^{"id":\([0-9]*\).*/\1/p')
done
