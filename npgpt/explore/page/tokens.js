// Chapter 5: ids, the loss at each position; back, the gradient along each embedding.

views.tokens = {
  reads: ["p", "back", "lang", "bytes"],
  draw(figure) {
    const base = 118;
    const nodes = [followed(base), words(0, 12, t("id"), "soft")];
    const slopes = upTo(T).map((i) => at(DATA.stream.slope, 0, i));
    const most = largest(state.back ? slopes : DATA.losses.values) || 1;
    const power = powerFor(slopes);
    for (const [place, { token }] of columns.shown.entries()) {
      if (token === undefined) continue;
      const x = middle(place);
      const small = columns.step < 40 ? "soft mid tiny" : "soft mid";
      const low = columns.step < 34 && place % 2 ? 11 : 0; // narrow columns take turns
      nodes.push(words(x, 12 + low, String(DATA.tokens[token].id), small));
      if (state.back) nodes.push(...this.slope(x, slopes[token], most, power, token));
      else nodes.push(...this.loss(x, base, token, most));
    }
    nodes.push(
      words(
        0,
        state.back ? 78 : base - 4,
        t(state.back ? "saliency" : columns.wide ? "nextLoss" : "lossShort"),
        "soft",
      ),
    );
    if (state.back && power)
      nodes.push(
        words(
          0,
          94,
          columns.wide ? t("times", { power: tenTo(power) }) : `· ${tenTo(power)}`,
          "soft small",
        ),
      );
    nodes.push(
      line(
        columns.gutter,
        state.back ? 74 : base,
        edge(columns.shown.length),
        state.back ? 74 : base,
        "axis",
      ),
    );
    const said = state.back ? t("saliency") : t("nextLoss");
    figure.replaceChildren(
      drawing(base + 4, said, nodes),
      legend(),
      fold("bytes", t("bytes")),
      ...(state.bytes ? [bytesTable()] : []),
    );
  },
  loss(x, base, token, most) {
    const wide = Math.min(22, columns.step - 6);
    if (token >= SCORED) return [words(x, base - 5, "–", "faint mid")];
    const height = (70 * at(DATA.losses, token)) / most;
    const text = fixed(at(DATA.losses, token), columns.step < 34 ? 1 : 2);
    return [
      rect(x - wide / 2, base - height, wide, height, token === state.p ? "ink" : "pale"),
      words(x, base - height - 6, text, columns.step < 40 ? "mid tiny" : "mid"),
    ];
  },
  slope(x, value, most, power, token) {
    const wide = Math.min(22, columns.step - 6);
    const height = Math.max(1, (34 * Math.abs(value)) / most);
    const y = value > 0 ? 74 - height : 74;
    const [dx, kind] = value > 0 ? [0, "raises"] : [0.65, "lowers"];
    const small = columns.step < 40 ? "mid tiny" : "mid small";
    if (value === 0 && token >= SCORED) return [words(x, 70, "–", "faint mid")];
    return [
      rect(x - wide / 2 + dx, y + dx, wide - 2 * dx, Math.max(0.5, height - 2 * dx), kind),
      words(x, value > 0 ? y - 4 : y + height + 12, inPower(value, power), small),
    ];
  },
  key: (step) => views.strip.key(step),
};

/** Bytes in hexadecimal; the tokens of one character stand under one bracket in the strip. */
function bytesTable() {
  return h(
    "p",
    { class: "note mono" },
    DATA.tokens.map((token, i) => [
      h(
        "span",
        { class: token.part ? "chip bytes" : "chip" },
        `${i} ${tokenText(token.label)} = ${token.bytes || "#" + token.id}`,
      ),
      " ",
    ]),
  );
}
