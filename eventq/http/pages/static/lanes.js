// A click on the drawing shows the turn there.

document.addEventListener("click", (event) => {
  const lanes = event.target.closest?.("#lanes");
  if (!lanes) return;
  const { at, first, step, row } = lanes.dataset;
  const box = lanes.getBoundingClientRect();
  const lane = Math.round((event.clientY - box.top) / row) - 1;
  const label = document.querySelectorAll(".labels li")[lane];
  if (!label) return;
  const turn = Math.round((event.clientX - box.left) / step) - 1 + Number(first);
  const depth = Math.max(0, turn - label.dataset.shift);
  location.href = `${at}/contexts/${label.dataset.context}?depth=${depth}`;
});
