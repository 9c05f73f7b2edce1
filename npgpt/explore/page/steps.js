// What the large table shows at each of the six steps, forward and back.

const divisorOf = (head) => DATA.divisors[layerOf(head)];

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** How many tokens back a head sees, its own included. */
const windowOf = (head) => DATA.windows[layerOf(head)] ?? Infinity;
const hidden = (head, i, j) => j > i || j <= i - windowOf(head);

/** Scaled scores, also of what is hidden where q and k are in the page; null where not. */
function anyScore(head) {
  const S = table("scores", head);
  return (i, j) => {
    if (!hidden(head, i, j)) return S(i, j);
    const q = vector("q", head, i);
    return q ? dot(q, vector("k", head, j)) / divisorOf(head) : null;
  };
}

/** How much of token j's value arrives at i: the weight times the length of v W_O. */
const movedFrom = (head, i, j) => table("probs", head)(i, j) * at(DATA.moved.values, head, j);

/** The numbers of a step as (i, j) -> number or null, and how they are drawn. */
function stepTable(step, back, head) {
  const P = table("probs", head);
  const dP = table("dprobs", head);
  const dS = table("dscores", head);
  const S = anyScore(head);
  if (back) {
    const value = {
      2: (i, j) => dS(i, j) / divisorOf(head),
      3: dS,
      4: dS,
      5: dP,
      6: (i, j) => P(i, j) * dP(i, j),
    }[step];
    return { value, drawn: "mark", sums: step === 6 };
  }
  return {
    2: {
      value: (i, j) => (S(i, j) === null ? null : S(i, j) * divisorOf(head)),
      drawn: "grey",
      square: true,
      digits: 0,
    },
    3: { value: S, drawn: "grey", square: true, digits: 1 },
    4: { value: (i, j) => (hidden(head, i, j) ? null : S(i, j)), drawn: "grey", digits: 1 },
    5: { value: P, drawn: "weight", sums: true },
    6: { value: (i, j) => movedFrom(head, i, j), drawn: "moved", digits: 1 },
  }[step];
}

/** Everything of a table that needs its largest and smallest numbers. */
function measured(shown) {
  const rows = shownTokens();
  const numbers = (i, columns_) => columns_.map((j) => shown.value(i, j)).filter((x) => x !== null);
  const of = (i) => numbers(i, shown.square ? rows : rows.filter((j) => j <= i));
  const all = rows.flatMap(of);
  const range = new Map(rows.map((i) => [i, [Math.min(...of(i)), Math.max(...of(i))]]));
  return { most: largest(all), power: powerFor(all), range };
}

/** The colour of a cell that has one. */
function cellColour(shown, { most, range }, i, x) {
  if (shown.drawn === "weight") return shade(x);
  if (shown.drawn === "moved") return shade(most ? x / most : 0);
  const [low, high] = range.get(i);
  return shade(high > low ? (x - low) / (high - low) : 1, true);
}

/** The text of a cell: two digits where it is wide, fewer where it is narrow. */
function cellText(shown, { power }, x, narrow) {
  if (shown.drawn === "weight") return weight(x);
  if (shown.drawn === "mark") return inPower(x, power);
  const places = narrow && Math.abs(x) >= 9.95 ? 0 : shown.digits;
  return fixed(x, places);
}
