// Times as people say them, and parts of the page that are fetched again when a thread changes.

const words = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const shapes = {
  clock: new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" }),
  date: new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" }),
  day: new Intl.DateTimeFormat(undefined, { weekday: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
  today: new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
};
const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const ages = Object.fromEntries(units.map(([unit]) => [
  unit, new Intl.NumberFormat(undefined, { style: "unit", unit, unitDisplay: "short" }),
]));

// In a column of ages "43 min", elsewhere "43 minutes ago".
function told(one, number, unit) {
  if (!one.closest(".age")) return words.format(number, unit);
  return ages[unit].format(Math.abs(number));
}

export function tellTimes(root = document) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const at = new Date(one.dateTime);
    if (Number.isNaN(at.valueOf())) continue;  // others than eventq wrote it, or it is very far away
    const seconds = (at - Date.now()) / 1000;
    const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? units.at(-1);
    const shape = shapes[one.className];
    const text = shape ? shape.format(at) : told(one, Math.round(seconds / size), unit);
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
let later = 0;

function tell(what) {
  status.textContent = what;
  status.classList.toggle("late", what !== "live");
}

function isChosen(list) {
  const first = [...list.options].findIndex((one) => one.defaultSelected);
  return list.selectedIndex !== Math.max(0, first);
}

// What a person writes, or has opened to decide on, is not taken from under their hands.
function isBusy(part) {
  const isWritten = (one) => (one.matches("select") ? isChosen(one) : one.value !== one.defaultValue);
  const fields = [...part.querySelectorAll("input:not([type=hidden]), select")];
  const open = ".sure[open], .call[open], .think[open], .folded[open], .letters [open], input:checked";
  return part.matches("[data-held]") || part.querySelector(open) || fields.some(isWritten);
}

const names = (part) => [...part.querySelectorAll("li[id]")].map((one) => one.id);

// Rows do not move under the finger: while a control among them has focus, others wait.
function isHeld(part, fresh) {
  part.querySelector(".held")?.remove();
  if (!part.hasAttribute("data-hold") || !part.contains(document.activeElement)) return false;
  const [before, after] = [names(part), names(fresh)];
  if (before.join() === after.join()) return false;
  const more = after.filter((one) => !before.includes(one)).length;
  const button = Object.assign(document.createElement("button"), {
    className: "held", type: "button", textContent: more ? `${more} new` : "the list has changed",
  });
  button.onclick = () => {
    button.remove();
    replace(part, fresh);
  };
  part.append(button);
  return true;
}

document.addEventListener("focusout", ({ target, relatedTarget }) => {
  const part = target.closest?.("[data-hold]");
  if (part?.querySelector(".held") && !part.contains(relatedTarget)) refresh();
});

function replace(part, fresh) {
  if (part.dataset.shown === fresh.outerHTML) return;
  const shown = fresh.outerHTML;
  const active = document.activeElement;
  const label = part.contains(active) ? active.id || active.getAttribute("href") : null;
  const made = document.adoptNode(fresh);
  for (const one of part.querySelectorAll("details[open] > summary[id]")) {
    made.querySelector(`#${CSS.escape(one.id)}`)?.parentElement.setAttribute("open", "");
  }
  tellTimes(made);
  part.replaceWith(made);
  made.dataset.shown = shown;
  if (label) {
    const found = [...made.querySelectorAll("a, input, button, select, summary")];
    found.find((one) => one.id === label || one.getAttribute("href") === label)?.focus();
  }
}

class Refused extends Error {}

export async function refresh() {
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  try {
    const reply = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!reply.ok) throw new Refused();
    const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
    clearTimeout(later);
    if (fresh.querySelector("[data-unfinished]")) later = setTimeout(refresh, 1000);
    document.dispatchEvent(new CustomEvent("fresh", { detail: fresh }));
    for (const part of document.querySelectorAll("[data-part]")) {
      const one = fresh.getElementById(part.id);
      if (one && !isBusy(part) && !isHeld(part, one)) replace(part, one);
    }
    tell("live");
    document.title = fresh.title;
  } catch (error) {
    tell(error instanceof Refused ? "refused: load the page to see why" : "the server does not answer");
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
  follow(() => path, refresh);
  setInterval(() => document.hidden || refresh(), 15000);
}

export { follow };
