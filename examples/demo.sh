#!/bin/sh
# The main job: a thread, three consumers with filters, events one by one and in a batch, and their
# results; then a message that could not be answered is found, and retried once the cause is mended.
# Each command is printed as it is run, so that it can be pasted into a shell.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
EVENTQ_NOTIFIER=builtin
export EVENTQ_NOTIFIER

# Print the command on standard input, and run it in this shell.
step() {
    command=$(cat)
    printf '\n\033[1m$ %s\033[0m\n' "$command"
    eval "$command"
}

step << END
PATH="$(dirname "$(command -v eventq)"):\$PATH"
END
step << END
examples='$here'
END
step << 'END'
cd "$(mktemp -d)"
END
work=$(pwd)
trap 'cd / && rm -rf "$work"' EXIT

step << 'END'
eventq init inbox
END
step << 'END'
eventq subscribe --thread inbox --consumer chat --handler "sh '$examples/handler.sh'" \
    --filter "type = 'message'"
END
step << 'END'
eventq subscribe --thread inbox --consumer audit --handler "sh '$examples/handler.sh'" \
    --filter "type = 'record' AND source = 'self'"
END
step << 'END'
printf '%s\n' external:telegram:main:dm:alice:alice internal:dm:default:warden > contacts
END
step << 'END'
eventq subscribe --thread inbox --consumer reply --each --max-attempts 1 --on-failure dead \
    --handler "sh '$examples/reply.sh' contacts" --filter "type = 'message'"
END

step << 'END'
eventq push --thread inbox --source external:telegram:main:dm:alice:alice --type message \
    --content 'Hello, agent'
END
step << 'END'
eventq push --thread inbox --source self --type record --subtype decision \
    --content 'I shall answer Alice'
END
step << 'END'
eventq push --thread inbox --batch --json << 'EOF'
{"source": "internal:dm:default:warden", "type": "message", "content": "How is it going?"}
{"source": "self", "type": "record", "subtype": "toolcall", "content": {"tool": "bash", "exit": 0}}
{"source": "external:telegram:main:dm:bob:bob", "type": "message", "content": "Good evening"}
EOF
END

printf '\n\033[1mThe pushes have started the handlers. One message cannot be answered:\033[0m\n'
step << 'END'
while eventq info --thread inbox --json | grep -Eq '"pending":[1-9]|"running":true'; do
    sleep 0.1
done
END
step << 'END'
eventq dead ls --thread inbox
END
step << 'END'
eventq dead show 5 --thread inbox --consumer reply
END
step << 'END'
echo external:telegram:main:dm:bob:bob >> contacts
END
step << 'END'
eventq dead retry --thread inbox --consumer reply --all
END
step << 'END'
while eventq info --thread inbox --json | grep -Eq '"pending":[1-9]|"running":true'; do
    sleep 0.1
done
END
step << 'END'
cat inbox/logs/handlers/reply.log
END

printf '\n\033[1mA bounded part of an output is shown, and all of it kept:\033[0m\n'
step << 'END'
eventq capture --thread inbox --spill 200 --head 40 -- seq 100000
END
step << 'END'
eventq cat artifact://0 --thread inbox --offset 50000 --limit 2
END

printf '\n\033[1mWhat there is to look at:\033[0m\n'
step << 'END'
eventq info --thread inbox
END
step << 'END'
cat inbox/logs/handlers/chat.log inbox/logs/handlers/audit.log
END
step << 'END'
cat inbox/events.jsonl
END
step << 'END'
cat inbox/logs/thread.log
END
step << 'END'
eventq tail --thread inbox -n 3
END
step << 'END'
eventq check --thread inbox
END
