// The strip that stays in sight: one column a token, and the switch that turns the page over.

function tokenButton(token, place) {
  const size = columns.step >= 40 ? 13 : 11;
  const most = columns.wide ? Math.max(2, Math.floor((columns.step - 2) / (size * 0.6))) : 9;
  const text = columnText(token, 99);
  const fits = monoWidth(text, 10) <= columns.step - 1 || !columns.wide;
  const shown = fits ? text : columnText(token, most);
  const fontSize = columns.wide
    ? Math.min(size, Math.max(10, (size * (columns.step - 2)) / monoWidth(shown, size)))
    : 13;
  const looked = state.key === token && state.p !== token;
  return h(
    "button",
    {
      type: "button",
      style: `left:${edge(place)}px;width:${columns.step}px`,
      "data-token": token,
      class: [looked && "looked", DATA.tokens[token].part && "part"].filter(Boolean).join(" "),
      "aria-pressed": String(token === state.p),
      "aria-label": t("followOne", { t: String(token), token: columnText(token) }),
      tabindex: token === state.p ? 0 : -1,
      title: text,
      onclick: () => set({ p: token }),
      onpointerenter: () => hint(null, token),
      onpointerleave: () => hint(null, null),
    },
    h("span", { style: `font-size:${fontSize}px` }, shown),
    h("small", {}, String(token)),
  );
}

function gapBox(column, place) {
  const n = column.to - column.from;
  return h(
    "span",
    {
      class: "gap",
      style: `left:${edge(place)}px;width:${columns.step}px`,
      title: t("foldedColumns", { n }),
    },
    "⋯",
    h("small", {}, String(n)),
  );
}

/** A bracket over the tokens that are together one character. */
function bracket({ first, last, text }) {
  const [a, b] = [columns.of.get(first), columns.of.get(last)];
  if (a === undefined || b === undefined) return null;
  const style = `left:${edge(a) + 3}px;width:${edge(b) + columns.step - edge(a) - 6}px`;
  return h(
    "span",
    { class: "character", style, "aria-hidden": "true" },
    h("i", {}, tokenText(text)),
  );
}

/** Point at the tokens of a cell in the strip, and at a token's row and column in the large table. */
function hint(row, key) {
  for (const each of document.querySelectorAll("#strip [data-token]")) {
    const token = Number(each.dataset.token);
    each.classList.toggle("near", token === key || token === row);
  }
  pointInTable(row, key);
}

function directions() {
  const turn = (back, arrow, name) =>
    button([arrow, " ", t(name)], state.back === back, () => set({ back }));
  return h(
    "div",
    { role: "group", "aria-label": t("direction") },
    turn(false, "↓", "forward"),
    turn(true, "↑", "backward"),
  );
}

views.strip = {
  reads: ["p", "key", "head", "back", "lang"],
  place: "strip",
  draw(box) {
    const cells = columns.shown.map((column, i) =>
      column.token === undefined ? gapBox(column, i) : tokenButton(column.token, i),
    );
    const name = columns.wide ? `${t("token")}\n${t("position")}` : t("token");
    const hadFocus =
      box.contains(document.activeElement) && document.activeElement.dataset.token !== undefined;
    const onSwitch = box.contains(document.activeElement) && !hadFocus;
    box.replaceChildren(
      h("div", { class: "tokens" }, h("span", {}, name), cells, DATA.characters.map(bracket)),
      h(
        "div",
        { class: "switch" },
        h(
          "span",
          { class: "follows" },
          say("following", { token: chipAt(state.p) }),
          ` ${state.p}`,
        ),
        directions(),
        h("small", {}, state.back ? t("ofLoss", { n: String(SCORED) }) : ""),
      ),
    );
    if (hadFocus)
      box.querySelector('.tokens [aria-pressed="true"]')?.focus({ preventScroll: true });
    if (onSwitch)
      box.querySelector('.switch [aria-pressed="true"]')?.focus({ preventScroll: true });
  },
  key(step) {
    if (step.x) set({ p: neighbour(state.p, step.x) });
    return Boolean(step.x);
  },
};
