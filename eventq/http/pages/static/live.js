// Events as they come. Whatever they say is text, never markup.

import { follow, tellTimes } from "/static/page.js";

const table = document.getElementById("events");
const body = table.tBodies[0];
const rate = document.getElementById("rate");
const pause = document.getElementById("pause");
const MOST = 500; // rows that are kept
const A_SECOND = 200; // rows that are shown a second, at most
const HELD = 400; // events that wait while the page is paused, at most
let last = table.dataset.next; // the event after which the stream goes on
let waiting = [];
let dropped = 0;
let came = 0;
let kept = 0;
let isPaused = false;

function pretty(content) {
  try {
    const value = JSON.parse(content);
    return typeof value === "object" && value !== null ? JSON.stringify(value, null, 2) : content;
  } catch {
    return content;
  }
}

function cell(row, child) {
  const made = document.createElement("td");
  made.append(child);
  row.append(made);
}

function row(event) {
  const made = document.createElement("tr");
  made.id = `event-${event.id}`;
  made.className = "fresh";
  const link = document.createElement("a");
  link.href = `events/${event.id}`;
  link.textContent = event.id;
  const time = document.createElement("time");
  time.dateTime = event.created_at;
  const content = document.createElement("pre");
  content.textContent = pretty(event.content);
  cell(made, link);
  cell(made, time);
  cell(made, event.source);
  cell(made, event.subtype ? `${event.type} / ${event.subtype}` : event.type);
  cell(made, content);
  made.lastChild.className = "full";
  return made;
}

function show() {
  if (isPaused || !waiting.length) return;
  const some = waiting;
  waiting = [];
  const rows = document.createDocumentFragment();
  for (const one of some.reverse()) rows.append(row(one));
  tellTimes(rows);
  body.prepend(rows);
  while (body.rows.length > MOST) body.lastChild.remove();
}

function heard(message) {
  if (!message?.data) return;
  last = message.lastEventId;
  came += 1;
  if (isPaused ? waiting.length >= HELD : kept >= A_SECOND) {
    dropped += 1;
    return;
  }
  kept += 1;
  waiting.push(JSON.parse(message.data));
  if (waiting.length === 1) requestAnimationFrame(show);
}

setInterval(() => {
  if (isPaused) rate.textContent = `paused: ${waiting.length}${dropped ? "+" : ""} events wait`;
  else if (dropped) rate.textContent = `${came} events in the last second: ${kept} of them are shown`;
  else rate.textContent = came ? `${came} events in the last second` : "";
  if (!isPaused) dropped = 0;
  came = kept = 0;
  show();
}, 1000);

pause.hidden = false;
pause.addEventListener("click", () => {
  isPaused = !isPaused;
  pause.setAttribute("aria-pressed", isPaused);
  pause.textContent = isPaused ? "Go on" : "Pause";
  show();
});

function path() {
  const url = new URL(table.dataset.stream, location.href);
  url.searchParams.set("after", last);
  return url;
}

if (table.dataset.stream) follow(path, heard);
