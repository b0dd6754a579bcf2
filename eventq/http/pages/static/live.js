// Live: a pause, and how many events came that the page does not show. The server makes the rows.

import { refresh } from "/static/page.js";

const rate = document.getElementById("rate");
const pause = document.getElementById("pause");
const part = () => document.getElementById("events");
const plural = (n) => `${n.toLocaleString("en")} ${n === 1 ? "event" : "events"}`;
const TOLD = 10_000; // ms for which it is said that events are not shown
let isPaused = false;
let telling = 0;

function tell() {
  for (const one of document.querySelectorAll("[data-part]")) one.toggleAttribute("data-held", isPaused);
}

document.addEventListener("fresh", ({ detail }) => {
  const shown = part();
  const fresh = detail.getElementById("events");
  if (!fresh) return;
  const last = Number(shown.dataset.last);
  const came = Number(fresh.dataset.last) - last;
  if (isPaused) {
    rate.textContent = came ? `paused: ${plural(came)} came since` : "paused";
    return;
  }
  const first = Number(fresh.dataset.first);
  const missed = came > 0 && first > last + 1 ? first - last - 1 : 0;
  if (missed) {
    rate.textContent = `${plural(came)} came at once: the newest of them are shown`;
    clearTimeout(telling);
    telling = setTimeout(() => isPaused || (rate.textContent = ""), TOLD);
  }
  if (came > 0) {
    for (const row of fresh.querySelectorAll("tbody tr")) {
      if (Number(row.id.slice(2)) > last) row.classList.add("fresh");
    }
  }
});

pause.hidden = false;
pause.addEventListener("click", () => {
  isPaused = !isPaused;
  pause.setAttribute("aria-pressed", isPaused);
  pause.textContent = isPaused ? "Go on" : "Pause";
  rate.textContent = isPaused ? "paused" : "";
  tell();
  if (!isPaused) refresh();
});
