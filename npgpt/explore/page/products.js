// Below the large table: the formula filled with the numbers of the chosen cell, and the products
// behind one score.

/** A formula part and its number: "q·k = −50.11". */
const filled = (text, number, kind = "") =>
  h("span", {}, math(text), " = ", h("b", { class: kind }, number));

/** Of a cell, which is the chosen one or the one under the pointer. */
const inNumbers = (p, key) =>
  h("div", { class: "numbers" }, formulaLine(p, key), ...productBars(p, key));

function formulaLine(p, key) {
  const { head, step, back } = state;
  const [a, b] = [columnText(p, 8), columnText(key, 8)];
  if (back && p >= SCORED) return h("p", { class: "formula" }, t("notScored"));
  return h(
    "p",
    { class: "formula" },
    back ? backParts(head, p, key, step, a, b) : forwardParts(head, p, key, step, a, b),
  );
}

/** The formula of queries, keys or values, with what this model has of biases and norms. */
function projected(name) {
  const sum = DATA.has_bias ? `x W_{${name}} + b_{${name}}` : `x W_{${name}}`;
  if (!LLAMA || name === "V") return sum;
  if (DATA.has_norms) return `R norm(${sum})`;
  return DATA.has_bias ? `R (${sum})` : `R ${sum}`;
}

function masked(head) {
  const back = windowOf(head) < T ? `, j ≤ i − ${windowOf(head)}` : "";
  return h("span", {}, math("+ M: "), h("b", {}, "−∞"), math(` for j > i${back}`));
}

function forwardParts(head, p, key, step, a, b) {
  const S = anyScore(head);
  const P = table("probs", head);
  const scaled = S(p, key);
  if (scaled === null) return [masked(head)];
  const divisor = divisorOf(head);
  const raw = filled(`q_{${a}}·k_{${b}}`, fixed(scaled * divisor, 2));
  const divided = h(
    "span",
    {},
    math(`÷ ${fixed(divisor, Number.isInteger(divisor) ? 0 : 2)}`),
    " = ",
    h("b", {}, fixed(scaled, 2)),
  );
  if (step === 1)
    return [
      h(
        "span",
        {},
        math(`q = ${projected("Q")},  k = ${projected("K")},  v = ${projected("V")}`),
      ),
    ];
  if (step === 2) return [raw];
  if (step === 3) return [raw, divided];
  if (step === 4 || hidden(head, p, key)) return [raw, divided, masked(head)];
  const visible = upTo(p + 1).filter((j) => !hidden(head, p, j));
  const most = Math.max(...visible.map((j) => S(p, j)));
  const sum = visible.reduce((total, j) => total + Math.exp(S(p, j) - most), 0);
  const share = h(
    "span",
    {},
    math(`e^{${fixed(scaled, 2)} − (${fixed(most, 2)})} ╱ Σ`),
    " = ",
    h("b", {}, digits(Math.exp(scaled - most), 4)),
    " ╱ ",
    h("b", {}, digits(sum, 4)),
    " = ",
    h("b", { class: "result" }, fixed(P(p, key), 3)),
  );
  if (step === 5) return [raw, divided, share];
  const length = at(DATA.moved.values, head, key);
  return [
    h(
      "span",
      {},
      math(`P ‖v_{${b}} W_{O}‖`),
      " = ",
      h("b", {}, fixed(P(p, key), 3)),
      " × ",
      h("b", {}, digits(length, 4)),
      " = ",
      h("b", { class: "result" }, digits(P(p, key) * length, 3)),
    ),
  ];
}

function backParts(head, p, key, step, a, b) {
  const [P, dP, dS] = ["probs", "dprobs", "dscores"].map((name) => table(name, head));
  const colour = (x) => (x < 0 ? "lowered" : "result");
  const sum = upTo(p + 1).reduce((total, k) => total + P(p, k) * dP(p, k), 0);
  const first = filled(
    `dP_{${a},${b}} = dz_{${a}}·v_{${b}}`,
    scientific(dP(p, key)),
    colour(dP(p, key)),
  );
  const power = thirdPower(largest([dP(p, key), sum]) || 1);
  const inUnits = (x) => digits(x / 10 ** power, 3);
  const score = h(
    "span",
    {},
    math(`dS_{${a},${b}} = P (dP − Σ_{k} P_{k} dP_{k})`),
    " = ",
    h("b", {}, fixed(P(p, key), 3)),
    " × (",
    h("b", {}, inUnits(dP(p, key))),
    sum < 0 ? " + " : " − ",
    h("b", {}, inUnits(Math.abs(sum))),
    `)·${tenTo(power)} = `,
    h("b", { class: colour(dS(p, key)) }, `${inUnits(dS(p, key))}·${tenTo(power)}`),
  );
  const divisor = fixed(divisorOf(head), Number.isInteger(divisorOf(head)) ? 0 : 2);
  if (step === 6)
    return [
      h(
        "span",
        {},
        math("P dP"),
        " = ",
        h("b", {}, fixed(P(p, key), 3)),
        " × ",
        h("b", {}, scientific(dP(p, key))),
        " = ",
        h("b", { class: colour(dP(p, key)) }, scientific(P(p, key) * dP(p, key))),
      ),
    ];
  if (step === 5) return [first];
  if (step >= 3) return [first, score];
  if (step === 2)
    return [
      filled(`dS ╱ ${divisor}`, scientific(dS(p, key) / divisorOf(head)), colour(dS(p, key))),
    ];
  return [
    h("span", {}, math(`dq_{${a}} = Σ_{j} dS_{${a},j} k_{j} ╱ ${divisor}`)),
    h("span", {}, math(`dk_{${b}} = Σ_{i} dS_{i,${b}} q_{i} ╱ ${divisor}`)),
  ];
}

/** A row of bars about zero: filled up, hollow down. */
function barRow(values, y, high, most, gradient) {
  const room = columns.width - columns.gutter;
  const wide = room / values.length;
  return [...values].map((x, i) => {
    const height = (high * Math.abs(x)) / most;
    const kind = gradient ? gradientKind(x) : x > 0 ? "forward" : "hollow";
    const shift = x > 0 ? 0 : 0.5;
    return rect(
      columns.gutter + i * wide + 0.5 + shift,
      (x > 0 ? y - height : y) + shift,
      wide - 1.2 - 2 * shift,
      height - 2 * shift,
      kind,
    );
  });
}

/** Step 1: the query of the followed token, key and value of the one it looks at. */
function vectorBars() {
  const { head, p, key, back } = state;
  if (!vector("q", head, p)) return [h("p", { class: "note" }, t("noVectors"))];
  const nodes = ["q", "k", "v"].flatMap((name, i) => {
    const of = name === "q" ? p : key;
    const values = vector(back ? `d${name}` : name, head, of);
    const y = 44 + i * 84;
    const text = t("vectorOf", {
      name: back ? `d${name}` : name,
      token: quoted(columnText(of, 6)),
    });
    return [
      words(0, y + 4, text, "soft small"),
      ...barRow(values, y, 36, largest(values) || 1, back),
      line(columns.gutter, y, columns.width, y, "thin"),
    ];
  });
  return [drawing(258, t("step1"), nodes), ...(LLAMA ? [turning()] : [])];
}

/** Llama: by how much the pairs of q's coordinates are turned at this position. */
function turning() {
  const angles = [...DATA.angles.values].map((x) => x * state.p);
  return h(
    "p",
    { class: "note" },
    t("turned", {
      p: state.p,
      most: digits(Math.max(...angles), 4),
      least: digits(Math.min(...angles), 2),
    }),
  );
}

/** The d_h products whose sum is the score, largest first. */
function productBars(p, key) {
  const { head, step, back } = state;
  const q = vector("q", head, p);
  if (back || step < 2 || step > 5 || !q) return [];
  const k = vector("k", head, key);
  const all = Float64Array.from(q, (x, i) => x * k[i])
    .sort()
    .reverse();
  const [plus, less] = [all.filter((x) => x > 0), all.filter((x) => x < 0)].map((part) =>
    part.reduce((a, b) => a + b, 0),
  );
  const most = largest(all) || 1;
  const score = anyScore(head)(p, key) * divisorOf(head);
  const y = 46;
  const said = [t("products", { n: all.length }), t("sumTo", { x: fixed(score, 2) })];
  return [
    drawing(86, said.join(" "), [
      said.map((text, i) => words(0, y - 4 + 16 * i, text, "soft small")),
      ...barRow(all, y, 34, most, false),
      line(columns.gutter, y, columns.width, y, "thin"),
      words(
        columns.width,
        12,
        `${fixed(plus, 2)} − ${fixed(-less, 2)} = ${fixed(score, 2)}`,
        "soft end small",
      ),
    ]),
  ];
}
