"""An inbox on another machine, without a package: `http_client.py URL send TEXT`, or `follow`.

URL is that of a thread, such as http://127.0.0.1:9010/api/threads/inbox; EVENTQ_TOKEN is the token.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request


class Inbox:
    """A thread behind `eventq serve --http`."""

    def __init__(self, url, token=""):
        self.url = url.rstrip("/")
        self.headers = {"authorization": f"Bearer {token}"} if token else {}

    def call(self, method, path, body=None):
        """Return the reply of the server; raise RuntimeError with its sentence."""
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.url}/{path}"
        request = urllib.request.Request(url, data, self.headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=90) as reply:  # noqa: S310
                return json.loads(reply.read() or "null")
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["detail"]) from None

    def send(self, text, key=None):
        """Store a message; with a key, safe to repeat when the answer was lost."""
        return self.call("POST", "events", {"content": text, "key": key})

    def follow(self, after=0):
        """Yield the events after an id, and wait for more, for ever."""
        while True:
            try:
                page = self.call("GET", f"events?after={after}&wait=60")
            except OSError:  # the server restarts
                time.sleep(1)
                continue
            yield from page["events"]
            after = page["next"]


if __name__ == "__main__":
    inbox = Inbox(sys.argv[1], os.environ.get("EVENTQ_TOKEN", ""))
    if sys.argv[2] == "send":
        print(inbox.send(sys.argv[3])["id"])
    for event in inbox.follow() if sys.argv[2] == "follow" else ():
        print(f"{event['id']}  {event['source']}  {event['content']}", flush=True)
