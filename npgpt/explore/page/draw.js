// Elements, shades and marks. Text always goes in as text, never as markup.

function make(namespace, tag, attributes, children) {
  const element = namespace
    ? document.createElementNS(namespace, tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined),
  );
  return element;
}
const h = (tag, attributes, ...children) => make(null, tag, attributes, children);
const s = (tag, attributes, ...children) =>
  make("http://www.w3.org/2000/svg", tag, attributes, children);

/** A drawing as wide as the main column; what it says in words is its label. */
function drawing(height, name, ...children) {
  const W = columns.width;
  return s(
    "svg",
    { width: W, height, viewBox: `0 0 ${W} ${height}`, role: "img", "aria-label": name },
    children,
  );
}
const words = (x, y, text, kind = "", more = {}) => s("text", { x, y, class: kind, ...more }, text);
const rect = (x, y, width, height, kind, more = {}) =>
  s("rect", { x, y, width: Math.max(0, width), height: Math.max(0, height), class: kind, ...more });
const line = (x1, y1, x2, y2, kind = "hair") => s("line", { x1, y1, x2, y2, class: kind });

const RAMPS = {
  light: ["F3F1EB", "D3E1E6", "9DC1CF", "5B98B1", "1F6C8C", "07405A"],
  dark: ["1D2024", "25414F", "2F6B86", "4C9CBE", "8CCDE8", "DDF3FC"],
  greyLight: ["F7F5F0", "D5D0C6", "A8A297", "7B756C", "524D47", "2B2825"],
  greyDark: ["1D2024", "33363B", "55585C", "85827D", "B8B2A9", "ECE7DE"],
};
const isDark = () => document.documentElement.dataset.scheme === "dark";

/** The colour [r, g, b] of a share between 0 and 1; the square root shows small ones. */
function shade(share, grey = false) {
  const ramp = RAMPS[grey ? (isDark() ? "greyDark" : "greyLight") : isDark() ? "dark" : "light"];
  const place = Math.min(1, Math.max(0, grey ? share : Math.sqrt(share))) * (ramp.length - 1);
  const low = Math.min(ramp.length - 2, Math.floor(place));
  const channel = (hex, i) => parseInt(hex.slice(2 * i, 2 * i + 2), 16);
  return [0, 1, 2].map((i) => {
    const [a, b] = [channel(ramp[low], i), channel(ramp[low + 1], i)];
    return Math.round(a + (b - a) * (place - low));
  });
}
const css = ([r, g, b]) => `rgb(${r},${g},${b})`;

/** The kind of text, black or white, that stands out more from a colour. */
function inkOn(rgb) {
  const [r, g, b] = rgb.map((c) =>
    (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "on-light" : "on-dark";
}

/** A gradient as a square of this area: filled raises the loss, hollow lowers it. */
function mark(x, y, value, most, size) {
  if (!value || !most) return null;
  const side = Math.max(1.6, size * Math.sqrt(Math.min(1, Math.abs(value) / most)));
  if (value > 0) return rect(x - side / 2, y - side / 2, side, side, "raises");
  const inner = Math.max(0.6, side - 1.3);
  return rect(x - inner / 2, y - inner / 2, inner, inner, "lowers");
}

/** A bar from zero to a value along x: filled or, below zero, hollow. */
function bar(x0, x1, y, height, kind) {
  const [low, high] = x0 < x1 ? [x0, x1] : [x1, x0];
  const hollow = kind.includes("hollow") || kind.includes("lowers");
  return hollow
    ? rect(low + 0.65, y + 0.65, high - low - 1.3, height - 1.3, kind)
    : rect(low, y, Math.max(0.8, high - low), height, kind);
}
const gradientKind = (value) => (value > 0 ? "raises" : "lowers");

/** What marks mean. Forward, it keeps its room unseen, so that turning back moves nothing. */
function legend(...more) {
  const one = (kind, text) => h("span", {}, h("span", { class: `key ${kind}` }), " ", text);
  return h(
    "p",
    { class: state.back ? "legend" : "legend unseen", "aria-hidden": String(!state.back) },
    one("raises", t("raises")),
    one("lowers", t("lowers")),
    h("span", {}, t("area")),
    ...more,
  );
}

const chip = (text) => h("code", { class: "chip" }, tokenText(text.replace(/^␣(?=.)/, "")));
const chipAt = (position) =>
  h("code", { class: DATA.tokens[position].part ? "chip bytes" : "chip" }, columnText(position));
const strong = (...text) => h("b", {}, ...text);
function button(text, pressed, onclick, more = {}) {
  return h(
    "button",
    { type: "button", "aria-pressed": pressed === null ? null : String(pressed), onclick, ...more },
    text,
  );
}
function fold(name, text) {
  return h(
    "button",
    {
      type: "button",
      class: "fold",
      "aria-expanded": String(state[name]),
      onclick: () => set({ [name]: !state[name] }),
    },
    state[name] ? "▾ " : "▸ ",
    h("span", {}, text),
  );
}
const largest = (values) => {
  let most = 0;
  for (const x of values) if (Math.abs(x) > most) most = Math.abs(x);
  return most;
};
