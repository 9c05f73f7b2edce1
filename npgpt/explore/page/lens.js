// The logit lens at every station and position; back, the gradient along each correction.

views.lens = {
  reads: ["p", "back", "lang", "scheme", "lens", "row", "head"],
  draw(figure) {
    const { back } = state;
    const opener = fold("lens", t("gridFold"));
    if (!state.lens) return figure.replaceChildren(opener);
    const height = 18;
    const nodes = [];
    const power = powerFor(DATA.stream.slope.values);
    const most = largest(DATA.stream.slope.values);
    for (const [r, name] of ROWS.entries()) {
      const y = r * height;
      nodes.push(
        words(
          0,
          y + 13,
          name,
          `small ${r % 2 || r === 0 ? "" : "soft"} ${r === chosenRow() ? "bold" : ""}`,
        ),
      );
      for (const [place, { token }] of columns.shown.entries()) {
        if (token === undefined) nodes.push(words(middle(place), y + 12, "⋯", "faint mid"));
        else
          nodes.push(
            ...(back
              ? this.slope(r, y, place, token, most)
              : this.guess(r, y, place, token, height)),
          );
      }
    }
    const place = columns.of.get(state.p);
    nodes.push(rect(edge(place), 0, columns.step, ROWS.length * height, "frame"));
    const scale = back ? ` · ${t("times", { power: tenTo(power) })}` : "";
    figure.replaceChildren(
      opener,
      h("p", { class: "caption" }, say(back ? "lensBack" : "lensTitle"), back ? scale : ""),
      drawing(ROWS.length * height + 2, t("gridFold"), nodes),
      legend(),
    );
  },
  guess(r, y, place, token, height) {
    const [id, p] = [at(DATA.stream.ids, r, token, 0), at(DATA.stream.p, r, token, 0)];
    const colour = shade(p);
    const right = id === targetAt(token) && token < SCORED;
    const most = Math.floor((columns.step - 3) / 6.4);
    const choose = () => set({ p: token, row: r });
    return [
      rect(edge(place) + 0.5, y + 0.5, columns.step - 1, height - 1, "cell", {
        fill: css(colour),
        "data-cell": `lens ${r} ${token}`,
        onclick: choose,
      }),
      most >= 3
        ? words(
            middle(place),
            y + 13,
            tokenText(label(id).replace(/^␣(?=.)/, ""), most),
            `token mid tiny ${inkOn(colour)}`,
          )
        : null,
      right ? rect(edge(place) + 1.5, y + 1.5, columns.step - 3, height - 3, "right") : null,
    ];
  },
  slope(r, y, place, token, most) {
    const value = at(DATA.stream.slope, r, token);
    const right = at(DATA.stream.ids, r, token, 0) === targetAt(token) && token < SCORED;
    return [
      right ? rect(edge(place) + 2, y + 1, columns.step - 4, 16, "outline") : null,
      token < SCORED || value
        ? mark(middle(place), y + 9, value, most, 16)
        : words(middle(place), y + 12, "–", "faint mid"),
    ];
  },
  key: (step) => views.stream.key(step),
};
