// Words in the language of the page: `WORDS` has every sentence in English and Chinese, and {name}
// in it is filled in with a text or an element. The sentences stand in the files named words_….

const WORDS = {};

/** The text of a key in the language of the page. Unknown keys are a fault of the page. */
function pattern(key) {
  if (!WORDS[key]) throw new Error(`no words for ${key}`);
  return WORDS[key][state.lang === "zh" ? 1 : 0];
}

const t = (key, values = {}) =>
  fill(pattern(key), values)
    .map((x) => x.textContent ?? x)
    .join("");

/** The same as a list of texts and elements; {b:…} is bold, and may have fillings inside. */
const say = (key, values = {}) => fill(pattern(key), values);

function fill(text, values) {
  const found = [];
  const piece = /\{b:((?:[^{}]|\{\w+\})*)\}|\{(\w+)\}/g;
  let end = 0;
  for (const match of text.matchAll(piece)) {
    found.push(text.slice(end, match.index));
    end = match.index + match[0].length;
    if (match[1] !== undefined) {
      const bold = document.createElement("b");
      bold.append(...fill(match[1], values));
      found.push(bold);
    } else {
      const value = values[match[2]];
      if (value === undefined) throw new Error(`{${match[2]}} of "${text}" is not filled in`);
      found.push(...[value].flat());
    }
  }
  return [...found, text.slice(end)].filter((part) => part !== "");
}

const quoted = (text) => (state.lang === "zh" ? `“${text}”` : `“${text}”`);
