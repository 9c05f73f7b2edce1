// The margin of a chapter: formula, function, the article's section, and Python that prints a number.

const station = (layer, part) => `${BLOCK}.${layer}.${part}`;
const chosenRow = () => (state.row >= 0 ? state.row : 1 + 2 * layerOf(state.head));

/** Python and what it prints: [code, result]. `SETUP` has the names. */
const PYTHON = {
  tokens() {
    const { p, back } = state;
    if (back)
      return ['(back["embed"] * seen["embed"])' + `[${p}].sum()`, at(DATA.stream.slope, 0, p)];
    if (p < SCORED) return [`-np.log(p[${p}, ids[${p + 1}]])`, at(DATA.losses, p)];
    return [`norm(seen["embed"][${p}])`, at(DATA.stream.added, 0, p)];
  },
  stream() {
    const name = stationOf(chosenRow());
    return state.back
      ? [
          `(back["${name}"] * seen["${name}"])[${state.p}].sum()`,
          at(DATA.stream.slope, chosenRow(), state.p),
        ]
      : [`norm(seen["${name}"][${state.p}])`, at(DATA.stream.added, chosenRow(), state.p)];
  },
  attention: attentionPython,
  neurons() {
    const n = at(DATA.neurons.at, state.p, state.neuron);
    const [layer, number] = [at(DATA.neurons.layer, n), at(DATA.neurons.number, n)];
    const name = station(layer, `mlp.${ACT}`);
    const values = state.back ? DATA.neurons.slope : DATA.neurons.active;
    return [
      `${state.back ? "back" : "seen"}["${name}"][${state.p}, ${number}]`,
      at(values, n, state.p),
    ];
  },
  answers() {
    const { target, foil } = pair();
    if (state.back) return [`dlogits[${state.p}, ${target}] * N`, slopeOf(target)];
    const ids = [...at(DATA.answers.ids, state.p)];
    const logit = (id) => at(DATA.answers.logits, state.p, ids.indexOf(id));
    return [
      `seen["logits"][${state.p}, ${target}] - seen["logits"][${state.p}, ${foil}]`,
      logit(target) - logit(foil),
    ];
  },
  silent() {
    const head = state.head;
    return [
      `npgpt.ablate(model, ids, heads=[(${layerOf(head)}, ${head % H})])[0].change`,
      DATA.heads[head].change,
    ];
  },
  weight() {
    const { name, index, value } = DATA.heads[state.head].hardest;
    return [`grads["${name}"][${index.join(", ")}]`, value];
  },
};

/** The number of the chosen cell at the chosen step. */
function attentionPython() {
  const { head, p, key, back, step } = state;
  const seen = (part, way = "seen") => `${way}["${station(layerOf(head), `${ATTN}.${part}`)}"]`;
  const shared = Math.floor((head % H) / G); // the head of k and v
  const cell = `[${head % H}, ${p}, ${key}]`;
  const q = vector(back ? "dq" : "q", head, p);
  if (step === 1)
    return [
      `norm(${seen("q", back ? "back" : "seen")}[${head % H}, ${p}])`,
      q ? Math.hypot(...q) : undefined,
    ];
  const value = table("probs", head) ? stepTable(step, back, head).value(p, key) : undefined;
  if (back) {
    const divided = step === 2 ? ` / ${Number(divisorOf(head).toPrecision(9))}` : "";
    if (step === 6) return [`${seen("probs")}${cell} * ${seen("probs", "back")}${cell}`, value];
    return [seen(step === 5 ? "probs" : "scores", "back") + cell + divided, value];
  }
  if (step === 2)
    return [`${seen("q")}[${head % H}, ${p}] @ ${seen("k")}[${shared}, ${key}]`, value];
  const masked = step < 5 && hidden(head, p, key); // the station has −∞ there
  if (step < 6) return [seen(step === 5 ? "probs" : "scores") + cell, masked ? undefined : value];
  const rows = `[${(head % H) * d_h}:${((head % H) + 1) * d_h}]`;
  const W_O = `model.params["${station(layerOf(head), `${ATTN}.${DATA.out}.weight`)}"]${rows}`;
  return [`${seen("probs")}${cell} * norm(${seen("v")}[${shared}, ${key}] @ ${W_O})`, value];
}

const SETUP = () => `import numpy as np, npgpt
from npgpt.ops.softmax import softmax_forward
model = npgpt.from_pretrained(${JSON.stringify(DATA.model)})
ids = [${DATA.tokens.map((token) => token.id).join(", ")}]
seen, back, N, norm = {}, {}, len(ids) - 1, np.linalg.norm
out = model.forward(ids, observe=seen.__setitem__)
p, _ = softmax_forward(out.logits, axis=-1)
dlogits = p.copy()
dlogits[range(N), ids[1:]] -= 1
dlogits[N] = 0  # no token follows the last
dlogits /= N
grads = model.backward(dlogits, out.saved, observe=back.__setitem__)`;

function python(name) {
  const [code, result] = PYTHON[name]();
  const shown =
    result === undefined
      ? ""
      : `\n→ ${Math.abs(result) >= 1e-3 || result === 0 ? digits(result, 4) : scientific(result)}`;
  return h("pre", { class: "python", "data-python": name }, code + shown);
}

/** A dotted name that may be broken behind its dots and underscores. */
const breakable = (name) => name.split(/(?<=[._])/).flatMap((part) => [part, h("wbr", {})]);

/** All of it for a chapter. */
function margin(chapter) {
  const way = state.back ? "back" : "forward";
  const source = chapter === "attention" ? STEP_SOURCES[state.step] : SOURCES[chapter][0];
  const section =
    chapter === "attention" ? t("sectionOfStep", { step: state.step }) : SOURCES[chapter][1];
  const notes = { answers: state.back ? t("beforeN", { n: SCORED }) : t("fixedScale") };
  return [
    h(
      "div",
      { class: "math" },
      FORMULAS[chapter][way].map((text) => h("div", {}, math(text))),
    ),
    h(
      "p",
      { class: "source" },
      breakable(source.endsWith("_") ? source + (state.back ? "backward" : "forward") : source),
    ),
    h("p", {}, t("article", { section: numbered(section) })),
    python(chapter),
    notes[chapter] ? h("p", {}, notes[chapter]) : null,
  ].filter(Boolean);
}

/** Four answers about the chosen head, beside its table. */
function headCard() {
  const { head, p, key } = state;
  const facts = DATA.heads[head];
  const P = table("probs", head);
  const rows = [
    ["itsJob", jobText(facts)],
    ["looksAt", P ? [chipAt(key), " ", weight(P(p, key))] : "–"],
    ["movesThere", P ? digits(P(p, key) * at(DATA.moved.values, head, key), 3) : "–"],
    ["lossWithout", signed(facts.change, 4)],
    ["foretold", signed(facts.estimate, 4)],
    ["hardest", signedDigits(facts.hardest.value, 3)],
  ];
  const shares = facts.shares
    ?.filter((h) => h !== head % H)
    .map((h) => `H${h}`)
    .join(", ");
  return h(
    "div",
    { class: "card" },
    h("h3", {}, say("tableTitle", { address: address(head), token: chipAt(p) })),
    h(
      "dl",
      {},
      rows.map(([name, value]) => [h("dt", {}, t(name)), h("dd", { "data-fact": name }, value)]),
    ),
    python("weight"),
    shares ? h("p", {}, t("shares", { heads: shares })) : null,
  );
}

function jobText(facts) {
  if (facts.job === "back" && facts.offset > 1) return t("jobfar", { n: facts.offset });
  return t(`job${facts.mostly ? "mostly" : ""}${facts.job}`);
}
