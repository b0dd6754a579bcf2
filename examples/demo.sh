#!/bin/sh
# The story of README.md: an agent pushes, a handler works and asks a person, it is killed in the
# middle of that, and nothing is lost. Each command is printed as it is run, so that it can be
# pasted into a shell. In a terminal it waits for you to answer in a browser, or to press Enter; it
# goes on after a minute, as some builds have a terminal that nobody sits at.
set -eu
EVENTQ_NOTIFIER=builtin
export EVENTQ_NOTIFIER

bold= plain=
if [ -t 1 ] && [ -z "${NO_COLOR-}" ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); fi

say() {
    printf '\n%s%s%s\n' "$bold" "$1" "$plain"
}

# Print the command on standard input, and run it in this shell.
step() {
    command=$(cat)
    say "\$ $command"
    eval "$command"
}

# Run a command until it succeeds; fail if it does not within so many seconds.
within() {
    end=$(($(date +%s) + $1))
    shift
    until "$@"; do
        [ "$(date +%s)" -lt $end ] || return 1
        sleep 0.2
    done
}

asked() { eventq questions | grep -q .; }
again() { eventq claims ls --json | grep -q '"attempt":2'; }
answered() { ! asked; }
done_with() { ! eventq info --json | grep -Eq '"pending":[1-9]'; }
# Return whether a key was pressed or the answer is there; `stty` keeps the read from waiting.
answered_or_key() {
    [ -z "$(dd bs=1 count=1 2> /dev/null | tr '\n\r' '..')" ] || return 0
    answered
}
late() { echo "this has taken too long: see $work/inbox/logs" >&2; trap - EXIT; exit 1; }

step << 'END'
cd "$(mktemp -d)"
END
work=$(pwd)
pages=
terminal=
tidy() {
    cd /
    [ -z "$terminal" ] || stty "$terminal"
    [ -z "$pages" ] || kill "$pages"
    rm -rf "$work"
}
trap tidy EXIT
trap 'exit 130' INT TERM

say 'A thread is a directory. In it, each event of type deploy is to run a script, which asks first:'
step << 'END'
eventq init inbox
END
step << 'END'
export EVENTQ_THREAD="$PWD/inbox"
END
step << 'END'
cat > deploy.sh << 'SCRIPT'
echo $$ > pid
answer=$(eventq ask "May $EVENTQ_EVENT_SOURCE deploy?" --approval --key "$EVENTQ_EVENT_ID" --wait 1h)
if [ "$answer" = approve ]; then echo "deployed $(cat)"; else echo "left alone: $answer"; fi
SCRIPT
END
step << 'END'
eventq subscribe --consumer deployer --each --handler 'sh deploy.sh' --filter "type = 'deploy'"
END

say 'An agent wants to deploy. The push starts the script, which asks, and waits:'
step << 'END'
eventq push 'website 1.4' --source coder --type deploy
END
within 30 asked || late
step << 'END'
eventq questions
END

say 'The script is killed in the middle of its work. It is run again, and asks nobody twice:'
step << 'END'
sleep 2; kill -9 "$(cat pid)"
END
within 30 again || late
step << 'END'
eventq questions
END

if [ -t 0 ] && [ -t 1 ]; then
    say 'Answer it in your browser, or press Enter to go on without one (or wait a minute):'
    say '$ eventq ui'
    eventq ui &
    pages=$!
    terminal=$(stty -g)
    stty -icanon -echo min 0 time 0
    within 60 answered_or_key || true
    stty "$terminal"
    terminal=
fi
if asked; then
    say 'Answered in the shell; eventq ui shows the same in a browser:'
    step << 'END'
eventq answer 2 approve
END
fi
within 30 done_with || late

say 'What came of it:'
step << 'END'
cat inbox/logs/handlers/deployer.log
END
step << 'END'
eventq tail
END
step << 'END'
cat inbox/events.jsonl
END
step << 'END'
eventq check
END
say 'Go on with docs/tutorial.md. "pip install ." in a venv puts eventq on your PATH: see README.md'
