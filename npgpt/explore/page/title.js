// The head of the page: the text, facts in one line, three findings whose links lead to the cell.

function tools() {
  const language = (lang, name, code) =>
    h(
      "button",
      {
        type: "button",
        lang: code,
        "aria-pressed": String(state.lang === lang),
        onclick: () => set({ lang }),
      },
      name,
    );
  return h(
    "div",
    { class: "bar" },
    strong("npgpt explore"),
    h("span", {}, DATA.model),
    h("span", { class: "space" }),
    h("button", { type: "button", onclick: copyLink }, t("copy")),
    h("button", { type: "button", onclick: saveFigure }, t("save")),
    h("button", { type: "button", onclick: () => print() }, t("print")),
    h("span", {}, language("en", "English", "en"), " · ", language("zh", "中文", "zh-CN")),
    h(
      "button",
      {
        type: "button",
        "aria-label": t("scheme"),
        title: t("scheme"),
        onclick: () => set({ scheme: isDark() ? "light" : "dark" }),
      },
      "☀",
    ),
  );
}

/** The text itself; each token of a long one can be followed from here. */
function titleText() {
  const long = DATA.text.length > 90 || isFolded();
  if (!isFolded())
    return h(
      "h1",
      { class: long ? "long" : null },
      DATA.text || DATA.tokens.map((x) => x.label).join(" "),
    );
  const inside = new Map(
    DATA.characters.flatMap(({ first, last, text }) =>
      upTo(last - first + 1).map((i) => [first + i, i ? "" : text]),
    ),
  );
  const tokens = DATA.tokens.map((token, i) => {
    const text = inside.get(i) ?? token.label.replace(/␣/g, " ").replace(/⏎/g, " / ");
    const follow = {
      type: "button",
      "aria-pressed": String(i === state.p),
      onclick: () => set({ p: i }),
    };
    return text ? h("button", follow, text) : null; // the first of a character's tokens stands for all
  });
  return h("h1", { class: "long" }, tokens);
}

function findings() {
  const { p } = state;
  const token = chipAt(p);
  const best = at(DATA.answers.ids, p, 0);
  const guess = link(chip(label(best)), () => show("answers", {}));
  const chance = percent(at(DATA.answers.p, p, 0));
  const rank = String(at(DATA.stream.rank, 2 * L, p));
  const found =
    p === SCORED
      ? say("expectsLast", { token, guess, p: chance })
      : best === targetAt(p)
        ? say("expectsRight", { token, guess, p: chance })
        : say("expectsWrong", { token, guess, p: chance, next: chip(label(targetAt(p))), rank });
  const gap = state.lang === "zh" ? "" : " ";
  const star = DATA.stars[p];
  if (!star || star.weight < 0.3) return h("p", { class: "findings lead-in" }, found);
  const head = star.layer * H + star.head;
  const goTo = (text, chapter, changes) => link(text, () => show(chapter, changes));
  found.push(
    gap,
    ...say("looks", {
      token: chipAt(p),
      head: goTo(t("headOfBlock", { head: star.head, layer: star.layer }), "head", {
        head,
        key: star.key,
        step: 5,
      }),
      key: chipAt(star.key),
      w: weight(star.weight).replace(/^\./, "0."),
    }),
  );
  const { change } = DATA.heads[head];
  const size = (x, name) =>
    t(x < 0 ? `${name}Falls` : `${name}Rises`, { x: digits(Math.abs(x), 1) });
  found.push(
    gap,
    ...say("withoutHead", { change: goTo(size(change, "loss"), "silent", { head }) }),
  );
  const loud = DATA.mlps.reduce(
    (best, mlp, n) => (Math.abs(mlp.change) > Math.abs(DATA.mlps[best].change) ? n : best),
    0,
  );
  const mlp = DATA.mlps[loud].change;
  const mlpSize = t(mlp < 0 ? "itFalls" : "itRises", { x: digits(Math.abs(mlp), 2) });
  found.push(...say("withoutMlp", { layer: String(loud), change: goTo(mlpSize, "silent", {}) }));
  return h("p", { class: "findings" }, found);
}

/** A link inside the page; an anchor, because a button's text does not break like text. */
function link(content, onclick) {
  const go = (event) => (event.preventDefault(), onclick());
  return h("a", { href: "#chapters", onclick: go }, content);
}

/** Go to a figure, with something chosen in it. */
function show(view, changes) {
  set(changes);
  const figure = document.getElementById(`v-${view}`);
  figure.scrollIntoView({ block: "start" });
  scrollBy(0, -90);
  figure.focus({ preventScroll: true });
}

views.title = {
  reads: ["p", "lang", "scheme", "head", "key"],
  place: "top",
  draw(box) {
    const facts = t("facts", {
      blocks: String(L),
      heads: String(H),
      d: String(DATA.sizes.d),
      tokens: String(T),
      loss: fixed(DATA.loss, 3),
    });
    box.replaceChildren(
      tools(),
      titleText(),
      h("p", { class: "facts" }, facts),
      findings(),
      isFolded() ? h("p", { class: "note" }, t("folding")) : "",
    );
  },
};
