// A token is a column: it has one x on the whole page. Of a long text, columns are folded.

const NARROWEST = 26; // a column of a text that fits
const FOLDED = 46; // and where it does not, there is room for words
const columns = { width: 768, gutter: 108, step: 60, shown: [], wide: true };

/** Read the width of the page and decide which tokens have a column. */
function layColumns() {
  const main = document.querySelector(".main");
  columns.width = Math.floor(main?.clientWidth || 768);
  columns.wide = columns.width >= 560;
  columns.gutter = columns.wide ? 108 : 72;
  const room = columns.width - columns.gutter;
  const fits = T <= room / NARROWEST;
  const narrowest = columns.wide ? FOLDED : NARROWEST;
  columns.shown = fits
    ? upTo(T).map((token) => ({ token }))
    : folded(Math.max(5, Math.floor(room / narrowest)));
  columns.step = Math.min(60, Math.floor(room / columns.shown.length));
  columns.of = new Map(columns.shown.map((column, i) => [column.token, i]));
}

/** The first token, the followed one and its neighbours, what the head weighs most; gaps between. */
function folded(fit) {
  const { p, head, key } = state;
  const P = table("probs", head);
  const byWeight = upTo(p + 1).sort((a, b) => (P ? P(p, b) - P(p, a) : b - a));
  const near = [p, key, 0, p - 1, p + 1, p - 2, p + 2].filter((t) => t >= 0 && t < T);
  let best = [];
  const chosen = new Set();
  for (const token of [...near, ...byWeight, ...upTo(T)]) {
    chosen.add(token);
    const next = withGaps([...chosen].sort((a, b) => a - b));
    if (next.length > fit) {
      chosen.delete(token);
      if (chosen.size > fit) break;
    } else best = next;
  }
  return best;
}

function withGaps(tokens) {
  const found = [];
  let next = 0;
  for (const token of [...tokens, T]) {
    if (token - next === 1)
      found.push({ token: next }); // a gap of one is no shorter
    else if (token > next) found.push({ from: next, to: token });
    if (token < T) found.push({ token });
    next = token + 1;
  }
  return found;
}

const shownTokens = () =>
  columns.shown.filter((column) => column.token !== undefined).map((c) => c.token);
const isFolded = () => columns.shown.some((column) => column.token === undefined);
/** The left edge of a column, by its place or by its token. */
const edge = (place) => columns.gutter + place * columns.step;
const middle = (place) => edge(place) + columns.step / 2;
const middleOf = (token) => middle(columns.of.get(token));

/** The shown token next to one, in steps of -1 or 1. */
function neighbour(token, step) {
  const tokens = shownTokens();
  const place = tokens.indexOf(token);
  return tokens[Math.min(tokens.length - 1, Math.max(0, place + step))] ?? token;
}

/** A faint band behind the followed column. */
const followed = (height) =>
  columns.of.has(state.p)
    ? rect(edge(columns.of.get(state.p)), 0, columns.step, height, "band")
    : null;
