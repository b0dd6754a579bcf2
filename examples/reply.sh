#!/bin/sh
# Answer one message, if its sender is in the file of contacts, which is $1.
# eventq runs this once for each message, which is on standard input as JSON. The exit status says
# what becomes of it: 0 done, 75 try again later, 65 give up, anything else is a failed attempt.
if ! grep -qxF "$EVENTQ_EVENT_SOURCE" "$1"; then
    echo "no contact: $EVENTQ_EVENT_SOURCE" >&2
    exit 1
fi
echo "answered $EVENTQ_EVENT_SOURCE"
