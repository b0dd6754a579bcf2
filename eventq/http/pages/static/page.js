// Times as people say them, and parts of the page that are fetched again when a thread changes.

const words = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });
const date = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" });
const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

export function tellTimes(root = document) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const at = new Date(one.dateTime);
    const seconds = (at - Date.now()) / 1000;
    const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? units.at(-1);
    const absolute = { clock, date }[one.className];
    const text = absolute?.format(at) ?? words.format(Math.round(seconds / size), unit);
    if (one.textContent !== text) one.textContent = text;
    if (!one.title) one.title = exact.format(at);
  }
}

tellTimes();
setInterval(tellTimes, 1000);

const status = document.getElementById("live");
const path = document.body.dataset.changes;
let fetching = false;
let again = false;

function tell(what) {
  status.textContent = what;
  status.classList.toggle("late", what !== "live");
}

// What a person writes, or has opened to decide on, is not taken from under their hands.
function isBusy(part) {
  const active = document.activeElement;
  const isWritten = active.matches("input") && active.value !== active.defaultValue;
  const open = ".sure[open], .call[open], .think[open], .folded[open], .letters [open], input:checked";
  const isHeld = part.matches("[data-held]") || part.querySelector(open);
  return isHeld || (part.contains(active) && isWritten);
}

function replace(part, fresh) {
  if (part.dataset.shown === fresh.outerHTML) return;
  const shown = fresh.outerHTML;
  const active = document.activeElement;
  const label = part.contains(active) ? active.id || active.getAttribute("href") : null;
  const made = document.adoptNode(fresh);
  tellTimes(made);
  part.replaceWith(made);
  made.dataset.shown = shown;
  if (label) {
    const found = [...made.querySelectorAll("a, input, button")];
    found.find((one) => one.id === label || one.getAttribute("href") === label)?.focus();
  }
}

export async function refresh() {
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  try {
    const reply = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!reply.ok) throw new Error(reply.statusText);
    const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
    document.dispatchEvent(new CustomEvent("fresh", { detail: fresh }));
    for (const part of document.querySelectorAll("[data-part]")) {
      const one = fresh.getElementById(part.id);
      if (one && !isBusy(part)) replace(part, one);
    }
    tell("live");
    document.title = fresh.title;
  } catch {
    tell("the server does not answer");
  }
  fetching = false;
  if (again) {
    again = false;
    setTimeout(refresh, 250);
  }
}

// A browser keeps six connections to a host: a tab that nobody sees gives its one back.
// `path` is a function, as a stream goes on after what was heard.
function follow(path, heard) {
  let source = null;
  const see = () => {
    if (document.hidden) {
      source?.close();
      source = null;
    } else if (!source) {
      source = new EventSource(path());
      source.onopen = () => {
        tell("live");
        heard();  // what changed before the stream began is not in it
      };
      source.onerror = () => tell("the server does not answer");
      source.onmessage = heard;
    }
  };
  document.addEventListener("visibilitychange", () => {
    see();
    if (!document.hidden) heard();
  });
  see();
}

if (path && document.querySelector("[data-part]")) {
  for (const part of document.querySelectorAll("[data-part]")) part.dataset.shown = "";
  follow(() => path, refresh);
  setInterval(() => document.hidden || refresh(), 15000);
}

export { follow };
