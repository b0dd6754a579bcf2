"""An agent's inbox: answer each message in turn, and remember the conversation.

Run `python agent_inbox.py`, and push to it from another shell in the same directory:

    eventq push --thread inbox --source alice --content 'Hello'
    eventq tail --thread inbox -f

Kill the agent and start it again: it goes on where it was.
"""

import contextlib
import json
import sys

import eventq

AGENT = "agent"  # its consumer, its context, and the source of what it pushes


def call_model(messages):
    """Return the answer to the last of `messages`: put the call of your model here."""
    return f"You said '{messages[-1]['content']}'; I remember {len(messages) - 1} messages."


def open_memory(thread):
    """Return the context that holds the conversation; the first time, create it."""
    try:
        return thread.contexts.get(AGENT)
    except eventq.UnknownContextError:
        return thread.contexts.create(AGENT)


def answer(thread, memory, event):
    """Answer one event. If this raises, nothing is stored, and the event comes again."""
    question = {"role": "user", "content": event.content}
    messages = [*(json.loads(turn.payload) for turn in memory.replay()), question]
    reply = {"role": "assistant", "content": call_model(messages)}  # may take its time
    with thread.write():  # all of this is stored, or nothing: a crash loses and doubles no turn
        for turn in (question, reply):
            memory.append(json.dumps(turn))
        result = {"to": event.source, "about": event.id, "text": reply["content"]}
        thread.push(AGENT, "reply", json.dumps(result))
        thread.ack(AGENT, event.id)
    print(f"{event.source}: {event.content}\n{AGENT}: {reply['content']}", flush=True)


def main():
    """Answer what has come, then wait for more. A second agent on this inbox waits for the end."""
    path = sys.argv[1] if sys.argv[1:] else "inbox"
    with eventq.open(path, create=True) as thread:
        memory = open_memory(thread)
        for event in thread.consume(AGENT, filter="type = 'message'"):
            answer(thread, memory, event)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
