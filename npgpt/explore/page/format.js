// Numbers as text: true minus signs, no sign on a zero, no break before a unit.

const minus = (text) => text.replace("-", "−");

/** 0.529 -> ".53"; what rounds to 0 is "0". */
function weight(x) {
  const text = x.toFixed(2);
  if (Number(text) === 0) return "0";
  return text === "1.00" ? "1" : minus(text.replace(/^(-?)0\./, "$1."));
}

function fixed(x, digits) {
  const text = x.toFixed(digits);
  return Number(text) === 0 ? (digits && x !== 0 ? "0" : (0).toFixed(digits)) : minus(text);
}

function signed(x, digits) {
  const text = fixed(x, digits);
  return Number(text.replace("−", "-")) > 0 ? `+${text}` : text === fixed(0, digits) ? "0" : text;
}

/** So many digits that count: 0.000834 -> "0.000834", 51.1 -> "51.1". */
function digits(x, n) {
  if (x === 0) return "0";
  const places = Math.max(0, n - 1 - Math.floor(Math.log10(Math.abs(x))));
  return minus(x.toFixed(Math.min(12, places)));
}

const signedDigits = (x, n) => (x > 0 ? "+" : "") + digits(x, n);
const percent = (p) => `${p > 0.9995 ? "100" : (100 * p).toFixed(1)}\u00a0%`;
const probability = (p) => (p > 0.995 ? "1.0" : p < 0.01 ? "<.01" : weight(p));

/** The power of ten in which the largest of some numbers has two digits before the point. */
function powerFor(values) {
  let most = 0;
  for (const x of values) if (Math.abs(x) > most) most = Math.abs(x);
  return most ? Math.floor(Math.log10(most)) - 1 : 0;
}

/** A gradient in units of that power: "+27", "−0.8". */
function inPower(x, power) {
  const scaled = x / 10 ** power;
  return Math.abs(scaled) < 0.05 ? "0" : signed(scaled, Math.abs(scaled) >= 9.95 ? 0 : 1);
}

const SUPERSCRIPT = {
  "-": "⁻",
  0: "⁰",
  1: "¹",
  2: "²",
  3: "³",
  4: "⁴",
  5: "⁵",
  6: "⁶",
  7: "⁷",
  8: "⁸",
  9: "⁹",
};
const tenTo = (power) => `10${[...String(power)].map((c) => SUPERSCRIPT[c]).join("")}`;
const unit = (power) => (power === 0 ? "" : ` · ${tenTo(power)}`);

/** The power of ten, a multiple of 3, in which a number lies between 0.1 and 100. */
const thirdPower = (x) => 3 * Math.floor((Math.log10(Math.abs(x)) + 1) / 3);

/** −0.000834 -> "−0.834·10⁻³". */
function scientific(x) {
  if (x === 0) return "0";
  const power = thirdPower(x);
  if (power >= 0 && Math.abs(x) >= 0.1) return digits(x, 3);
  return `${digits(x / 10 ** power, 3)}·${tenTo(power)}`;
}

/** A token for lists: its space as a faint dot; cut where it is long. */
function tokenText(text, most = 99) {
  const shown = [...text.replace(/␣/g, "·")];
  return shown.length > most ? shown.slice(0, most - 1).join("") + "…" : shown.join("");
}

/** A token in its column: without the space before it. */
function columnText(t, most = 99) {
  const token = DATA.tokens[t];
  const text = token.part ? token.bytes : token.label.replace(/^␣(?=.)/, "");
  return tokenText(text, most);
}

const CHINESE_DIGITS = "〇一二三四五六七八九十";
/** A count in words up to ten, for titles. */
function count(n) {
  const words = "no one two three four five six seven eight nine ten eleven twelve".split(" ");
  if (state.lang === "zh") {
    return n <= 10 ? CHINESE_DIGITS[n] : n < 20 ? `十${CHINESE_DIGITS[n - 10]}` : `${n} `;
  }
  return words[n] ?? String(n);
}
/** A section as the article counts: "5, 6" -> 五、六, "7.3" -> 七.3. */
function numbered(section) {
  if (state.lang !== "zh") return section;
  return section.replace(/^\d+|(?<=, )\d+/g, (n) => CHINESE_DIGITS[n]).replace(", ", "、");
}
const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** Width of mono text in pixels: Chinese characters are twice as wide. */
const monoWidth = (text, size) =>
  [...text].reduce((sum, c) => sum + (c.codePointAt(0) > 0x2e80 ? size : size * 0.602), 0);

/** 1, 2 or 5 times a power of ten, so that an axis has about so many marks. */
function niceStep(span, marks) {
  const rough = (span || 1) / marks;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
}
