// What the reader has chosen. It stands in the address after #, so that a link shows the same.

const state = {
  p: DATA.start.position, // the followed token
  head: 0,
  key: 0, // the token at which the chosen cell looks
  step: 5,
  back: false,
  lang: "en",
  scheme: "", // "": as the system is
  sort: "place",
  row: -1, // of the stream, -1: the chosen head's attention
  neuron: 0, // its place in the list
  target: null,
  foil: null,
  open: "", // blocks whose heads are shown in the waterfall: "2,4"
  bytes: false, // folds: what is open of what is not shown at once
  lens: false,
  moreHeads: false,
  moreNeurons: false,
  moreParts: false,
};

const ORDERS = ["place", "job", "moved", "gradient"];
const views = {}; // name -> {reads, draw, key}
const redraws = []; // functions of the changed keys

function starAt(position) {
  const found = DATA.stars[position];
  if (found) return found.layer * H + found.head;
  return DATA.tables.kept.reduce((best, head) => {
    const weightOf = (h) => table("probs", h)(position, mostLooked(h, position));
    return weightOf(head) > weightOf(best) ? head : best;
  });
}

/** Two next tokens to compare: the true one and the likeliest other, unless others were chosen. */
function pair() {
  const ids = [...at(DATA.answers.ids, state.p)];
  const wished = state.p === DATA.start.position ? DATA.start : {};
  const target = ids.includes(state.target) ? state.target : (wished.target ?? targetAt(state.p));
  const others = ids.filter((id) => id !== target);
  const foil = others.includes(state.foil) ? state.foil : wished.foil;
  return { target, foil: others.includes(foil) ? foil : others[0] };
}

const KINDS = {
  p: "n",
  head: "h",
  key: "n",
  step: "n",
  back: "b",
  lang: "t",
  scheme: "t",
  sort: "t",
  row: "n",
  neuron: "n",
  target: "n",
  foil: "n",
  open: "t",
  bytes: "b",
  lens: "b",
  moreHeads: "b",
  moreNeurons: "b",
  moreParts: "b",
};
const DEFAULTS = {};

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const changes = {};
  for (const [name, kind] of Object.entries(KINDS)) {
    const text = given.get(name);
    if (text === null) continue;
    if (kind === "b") changes[name] = text === "1";
    else if (kind === "t") changes[name] = text;
    else if (kind === "h") {
      const [n, h] = text.split(".").map(Number);
      if (n >= 0 && n < L && h >= 0 && h < H) changes.head = n * H + h;
    } else if (Number.isInteger(Number(text))) changes[name] = Number(text);
  }
  return changes;
}

/** Only numbers that exist; what is left open follows from the others. */
function sensible(changes) {
  const next = { ...state, ...changes };
  next.p = Math.min(T - 1, Math.max(0, next.p));
  if (!(next.head >= 0 && next.head < L * H)) next.head = starAt(next.p);
  if ("p" in changes && !("key" in changes)) next.key = mostLooked(next.head, next.p);
  if ("head" in changes && !("key" in changes)) next.key = mostLooked(next.head, next.p);
  if ("p" in changes && next.p !== state.p) {
    if (!("target" in changes)) next.target = null;
    if (!("foil" in changes)) next.foil = null;
    if (!("neuron" in changes)) next.neuron = 0;
  }
  next.key = Math.min(next.p, Math.max(0, next.key));
  next.step = Math.min(6, Math.max(1, next.step));
  next.row = Math.min(2 * L, Math.max(-1, next.row));
  const known = { lang: ["en", "zh"], scheme: ["", "light", "dark"], sort: ORDERS };
  for (const [name, all] of Object.entries(known))
    if (!all.includes(next[name])) next[name] = all[0];
  return next;
}

let pending = 0;
/** The address follows when the reader pauses: writing it takes longer than drawing a step. */
function writeAddressSoon() {
  clearTimeout(pending);
  pending = setTimeout(writeAddress, 150);
}

function writeAddress() {
  const words = [];
  for (const name of Object.keys(KINDS)) {
    const value = state[name];
    if (value === DEFAULTS[name] || value === null || value === "") continue;
    const text =
      name === "head"
        ? `${layerOf(value)}.${value % H}`
        : value === true
          ? "1"
          : value === false
            ? "0"
            : value;
    words.push(`${name}=${encodeURIComponent(text)}`);
  }
  try {
    history.replaceState(null, "", `#${words.join("&")}`);
  } catch {
    // A page inside a notebook has no address of its own.
  }
}

/** Change the state and redraw the views that read what changed. */
function set(changes) {
  const next = sensible(changes);
  const changed = Object.keys(next).filter((name) => next[name] !== state[name]);
  if (!changed.length) return;
  Object.assign(state, next);
  writeAddressSoon();
  for (const redraw of redraws) redraw(changed);
}

function startState() {
  state.lang = /^zh/i.test(navigator.language) ? "zh" : "en";
  state.head = starAt(state.p);
  state.key = mostLooked(state.head, state.p);
  Object.assign(DEFAULTS, state);
  DEFAULTS.lang = null; // always in the address, for whoever opens the link
  Object.assign(state, sensible(readAddress()));
}
