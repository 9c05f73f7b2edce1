// The keyboard: Tab goes from view to view, arrows move inside one, Escape lets go of it.

const ARROWS = {
  ArrowLeft: { x: -1, y: 0 },
  ArrowRight: { x: 1, y: 0 },
  ArrowUp: { x: 0, y: -1 },
  ArrowDown: { x: 0, y: 1 },
};

function onKey(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (/^(SELECT|SUMMARY)$/.test(event.target.tagName)) return;
  const place = event.target.closest("figure, #strip");
  if (!place) return;
  const view = views[place.id.replace(/^v-/, "")];
  const onButton = event.target.tagName === "BUTTON" && place.id !== "strip";
  if (event.key === "Escape") return event.target.blur();
  if (event.key === "b") return set({ back: !state.back });
  if (event.key === "[" || event.key === "]")
    return set({ head: (state.head + (event.key === "]" ? 1 : L * H - 1)) % (L * H) });
  const step = { ...(ARROWS[event.key] ?? { x: 0, y: 0 }) };
  if (/^[1-6]$/.test(event.key)) step.digit = Number(event.key);
  if (event.key === "Enter" && !onButton) step.enter = true;
  if (!step.digit && !step.enter && !ARROWS[event.key]) return; // Tab, above all
  if (!view?.key || !view.key(step)) return;
  event.preventDefault();
  document.getElementById("spoken").textContent = (view.spoken ?? views.head.spoken)();
}
