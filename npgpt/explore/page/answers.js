// Chapter 10: softmax at the followed token; back, the probability less 1 at the true answer.

/** The probability, less 1 where the token is the true answer: N times the gradient of its logit. */
function slopeOf(id) {
  if (state.p >= SCORED) return 0;
  const place = [...at(DATA.answers.ids, state.p)].indexOf(id);
  return at(DATA.answers.p, state.p, place) - (id === targetAt(state.p) ? 1 : 0);
}

views.answers = {
  reads: ["p", "back", "lang", "target", "foil"],
  draw(figure) {
    const ids = [...at(DATA.answers.ids, state.p)];
    const rows = ids.flatMap((id, i) => (state.back ? this.slope(id, i) : this.chance(id, i)));
    figure.replaceChildren(
      drawing(ids.length * 20 + 4, t("answersLead", { token: columnText(state.p) }), rows),
      legend(),
      this.pick(ids),
    );
  },
  name(id, i) {
    const { target, foil } = pair();
    return words(
      0,
      i * 20 + 14,
      tokenText(label(id), columns.wide ? 13 : 9),
      `token ${id === target ? "bold" : ""} ${id === target || id === foil ? "" : "soft"}`,
    );
  },
  chance(id, i) {
    const p = at(DATA.answers.p, state.p, i);
    const per =
      (columns.width - columns.gutter - (columns.wide ? 170 : 120)) /
      at(DATA.answers.p, state.p, 0);
    const right = id === targetAt(state.p) && state.p < SCORED;
    return [
      this.name(id, i),
      bar(
        columns.gutter,
        columns.gutter + p * per,
        i * 20 + 4,
        12,
        id === pair().target ? "ink" : "forward",
      ),
      words(
        columns.gutter + p * per + 6,
        i * 20 + 14,
        percent(p) + (right ? `  ${columns.wide ? t("trueNext") : "✓"}` : ""),
        "",
        { style: "white-space:pre" },
      ),
    ];
  },
  slope(id, i) {
    const value = slopeOf(id);
    if (state.p >= SCORED)
      return [
        this.name(id, i),
        words(columns.gutter, i * 20 + 14, i ? "" : t("notScored"), "soft"),
      ];
    const all = [...at(DATA.answers.ids, state.p)].map(slopeOf);
    const span = columns.width - columns.gutter - 110;
    const low = Math.min(0, ...all);
    const per = span / (Math.max(0, ...all) - low || 1);
    const zero = columns.gutter + 55 - low * per;
    const x = zero + value * per;
    return [
      this.name(id, i),
      line(zero, i * 20, zero, i * 20 + 20, "thin"),
      bar(zero, x, i * 20 + 4, 12, gradientKind(value)),
      words(value > 0 ? x + 6 : x - 6, i * 20 + 14, signed(value, 3), value > 0 ? "" : "end"),
    ];
  },
  pick(ids) {
    const one = (name, chosen, options) =>
      h(
        "select",
        {
          "aria-label": `${t("explain")} ${name}`,
          "data-pick": name,
          onchange: (event) => set({ [name]: Number(event.target.value) }),
        },
        options.map((id) =>
          h("option", { value: id, selected: id === chosen }, tokenText(label(id))),
        ),
      );
    const { target, foil } = pair();
    return h(
      "p",
      { class: "pick" },
      t("explain"),
      " ",
      one("target", target, ids),
      " ",
      t("against"),
      " ",
      one(
        "foil",
        foil,
        ids.filter((id) => id !== target),
      ),
    );
  },
};
