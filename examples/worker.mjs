// A worker in Node: EVENTQ_TOKEN=… node worker.mjs http://127.0.0.1:9010/api/threads/inbox
const thread = process.argv[2];
const headers = { authorization: `Bearer ${process.env.EVENTQ_TOKEN}` };

async function call(method, path, body) {
  const reply = await fetch(`${thread}/${path}`, { method, headers, body: JSON.stringify(body) });
  if (!reply.ok) throw new Error((await reply.json()).detail);
  return reply.json();
}

await call("PUT", "consumers/node", { filter: "type = 'job'" });
for (;;) {
  const { claims } = await call("POST", "consumers/node/claim?wait=60", { limit: 10, worker: "node" });
  const done = [];
  for (const { token, event } of claims) {
    console.log(`event ${event.id}: ${event.content}`); // your work goes here
    done.push(token);
  }
  if (done.length) await call("POST", "settle", { done });
}
