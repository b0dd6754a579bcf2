#!/bin/sh
# The main job: a thread, three consumers with filters, events one by one and in a batch, and their
# results; then a message that could not be answered is found, and retried once the cause is mended.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
inbox=$work/inbox
EVENTQ_NOTIFIER=builtin
export EVENTQ_NOTIFIER

# Wait until no event waits for any consumer. The pushes have started the handlers.
settle() {
    waited=0
    until [ "$(eventq info --thread "$inbox" --json | grep -o '"pending":0,"running":false' | wc -l)" -eq 3 ]; do
        waited=$((waited + 1))
        [ "$waited" -lt 600 ] || { echo "the handlers did not finish" >&2; exit 1; }
        sleep 0.1
    done
}

step() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }

step eventq init "$inbox"
step eventq subscribe --thread "$inbox" --consumer chat --handler "sh '$here/handler.sh'" \
    --filter "type = 'message'"
step eventq subscribe --thread "$inbox" --consumer audit --handler "sh '$here/handler.sh'" \
    --filter "type = 'record' AND source = 'self'"
printf '%s\n' external:telegram:main:dm:alice:alice internal:dm:default:warden > "$work/contacts"
step eventq subscribe --thread "$inbox" --consumer reply --each --max-attempts 1 --on-failure dead \
    --handler "sh '$here/reply.sh' '$work/contacts'" --filter "type = 'message'"

step eventq push --thread "$inbox" --source external:telegram:main:dm:alice:alice --type message \
    --content 'Hello, agent'
step eventq push --thread "$inbox" --source self --type record --subtype decision \
    --content 'I shall answer Alice'
printf '\n\033[1m$ eventq push --batch < three lines\033[0m\n'
eventq push --thread "$inbox" --batch --json << 'EOF'
{"source": "internal:dm:default:warden", "type": "message", "content": "How is it going?"}
{"source": "self", "type": "record", "subtype": "toolcall", "content": {"tool": "bash", "exit": 0}}
{"source": "external:telegram:main:dm:bob:bob", "type": "message", "content": "Good evening"}
EOF

settle
printf '\n\033[1mOne message could not be answered:\033[0m\n'
step eventq dead ls --thread "$inbox"
step eventq dead show 5 --thread "$inbox" --consumer reply
printf '\n\033[1m$ echo external:telegram:main:dm:bob:bob >> contacts\033[0m\n'
echo external:telegram:main:dm:bob:bob >> "$work/contacts"
step eventq dead retry --thread "$inbox" --consumer reply --all
settle
step cat "$inbox/logs/handlers/reply.log"

printf '\n\033[1m$ eventq capture -- seq 100000\033[0m   (all of it kept, a bounded part shown)\n'
eventq capture --thread "$inbox" --spill 200 --head 40 -- seq 100000
step eventq cat artifact://0 --thread "$inbox" --offset 50000 --limit 2

step eventq info --thread "$inbox"
step cat "$inbox/logs/handlers/chat.log"
step cat "$inbox/logs/handlers/audit.log"
step cat "$inbox/events.jsonl"
step cat "$inbox/logs/thread.log"
step eventq tail --thread "$inbox" -n 3
step eventq check --thread "$inbox"
