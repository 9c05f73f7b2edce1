// One head large: a row for each token, and the six steps one can go through.

views.head = {
  reads: ["p", "key", "head", "step", "back", "lang", "scheme"],
  draw(figure) {
    const { head, p, key, step, back } = state;
    const title = say("headTitle", {
      address: address(head),
      layer: String(layerOf(head)),
      head: String(head % H),
      token: quoted(columnText(p)),
      key: quoted(columnText(key)),
    });
    const top = [
      h("p", { class: "caption" }, title),
      this.buttons(),
      h("p", { class: "caption" }, strong(`${step} ${t(`step${step}`)}`), " — ", this.says()),
    ];
    if (!table("probs", head))
      return figure.replaceChildren(...top, h("p", { class: "note" }, t("noTable")));
    const body = step === 1 ? vectorBars() : this.table();
    figure.replaceChildren(...top, ...body, inNumbers(p, key));
  },
  buttons() {
    const order = state.back ? [6, 5, 4, 3, 2, 1] : [1, 2, 3, 4, 5, 6];
    const one = (n) =>
      button(
        [String(n), h("span", {}, ` ${t(`step${n}`)}`)],
        n === state.step,
        () => set({ step: n }),
        { "data-step": n, "aria-label": `${n} ${t(`step${n}`)}` },
      );
    return h("div", { class: "steps", role: "group", "aria-label": t("steps") }, order.map(one));
  },
  says: () => t(`${state.back ? "back" : "say"}${state.step}`),
  table() {
    const { head, back, step } = state;
    const shown = stepTable(step, back, head);
    const sizes = measured(shown);
    const high = columns.wide ? 25 : 26;
    const rows = shownTokens();
    const nodes = rows.flatMap((i, place) => this.row(shown, sizes, i, place * high, high));
    const height = rows.length * high;
    nodes.push(...this.frames(rows, high), reading(shown, sizes, state.p, state.key));
    this.rows = rows;
    this.high = high;
    this.pointer = s("g", {});
    nodes.push(this.pointer);
    const name = t("headTitle", {
      address: address(head),
      layer: layerOf(head),
      head: head % H,
      token: columnText(state.p),
      key: columnText(state.key),
    });
    return [this.listen(drawing(height + 2, name, nodes)), tableLegend(shown, sizes)];
  },
  /** One listener for all cells: a thousand of them take longer than the drawing. */
  listen(svg) {
    const cellOf = (event) => event.target.dataset?.cell?.split(" ").map(Number);
    svg.addEventListener("click", (event) => {
      const [i, j] = cellOf(event) ?? [0, 1];
      if (j <= i) set({ p: i, key: j });
    });
    svg.addEventListener("pointerover", (event) => previewCell(...(cellOf(event) ?? [null, null])));
    svg.addEventListener("pointerleave", () => previewCell(null, null));
    return svg;
  },
  row(shown, sizes, i, y, high) {
    const bold = i === state.p ? "bold" : "";
    const name = columnText(i, columns.wide ? 12 : 9);
    const nodes = [words(columns.gutter - 8, y + high / 2 + 4, name, `token end ${bold}`)];
    if (state.back && i >= SCORED) {
      nodes.push(
        rect(columns.gutter, y, columns.step * columns.shown.length, high - 1, "outline"),
        words(columns.gutter + 8, y + 16, t("notScored"), "soft small"),
      );
      return nodes;
    }
    for (const [place, column] of columns.shown.entries()) {
      const x = edge(place);
      if (column.token === undefined) nodes.push(...this.gap(shown, column, i, x, y, high));
      else nodes.push(...this.cell(shown, sizes, i, column.token, x, y, high));
    }
    return nodes;
  },
  cell(shown, sizes, i, j, x, y, high) {
    const step = columns.step;
    const masked = state.step === 4 && !state.back;
    if ((j > i || (masked && hidden(state.head, i, j))) && !shown.square) {
      return masked
        ? [words(x + step / 2, y + high / 2 + 4, "–", "faint mid")]
        : [];
    }
    const value = shown.value(i, j);
    if (value === null) return [words(x + step / 2, y + high / 2 + 4, "·", "faint mid")];
    const more = { "data-cell": `${i} ${j}` };
    const text = cellText(shown, sizes, value, step < 34);
    if (shown.drawn === "mark") {
      const room = step >= 50;
      const size = room ? 21 : Math.min(step, high) - 3;
      return [
        rect(x, y, step, high, "outline"),
        mark(x + (room ? 13 : step / 2), y + high / 2, value, sizes.most, size),
        room ? words(x + step - 3, y + high / 2 + 4, text, "soft end small") : null,
        rect(x + 0.5, y + 0.5, step - 1, high - 1, "hit", { ...more, "data-text": text }),
      ];
    }
    const colour = cellColour(shown, sizes, i, value);
    const small = step < 34 ? "tiny" : "";
    return [
      rect(x + 0.5, y + 0.5, step - 1, high - 1, "cell", {
        fill: css(colour),
        ...more,
      }),
      words(x + step / 2, y + high / 2 + 4, text, `mid ${small} ${inkOn(colour)}`),
    ];
  },
  /** The folded tokens of a row together, so that it still sums to what it should. */
  gap(shown, column, i, x, y, high) {
    if (column.from > i) return [];
    let sum = 0;
    if (shown.sums)
      for (let j = column.from; j < Math.min(column.to, i + 1); j++) sum += shown.value(i, j);
    const text = !shown.sums ? "⋯" : shown.drawn === "weight" ? weight(sum) : scientific(sum);
    return [
      shown.sums ? rect(x + 1.5, y + 1.5, columns.step - 3, high - 3, "blank") : null,
      columns.step >= 40 || shown.drawn === "weight" || !shown.sums
        ? words(x + columns.step / 2, y + high / 2 + 4, text, "soft mid tiny")
        : null,
    ];
  },
  frames(rows, high) {
    const y = rows.indexOf(state.p) * high;
    const x = edge(columns.of.get(state.key));
    const wide = edge(columns.of.get(state.p)) + columns.step - columns.gutter;
    return [
      rect(columns.gutter, y, wide, high, "frame"),
      rect(x + 1.5, y + 1.5, columns.step - 3, high - 3, "chosen"),
      rect(x + 3.5, y + 3.5, columns.step - 7, high - 7, "halo"),
    ];
  },
  key(step) {
    if (step.y) {
      const p = neighbour(state.p, step.y);
      set({ p, key: Math.min(p, state.key) });
    } else if (step.x) set({ key: Math.min(state.p, neighbour(state.key, step.x)) });
    else if (step.digit >= 1 && step.digit <= 6) set({ step: step.digit });
    else return false;
    return true;
  },
  spoken() {
    const P = table(state.back ? "dprobs" : "probs", state.head);
    if (!P) return t("noTable");
    const w = state.back ? scientific(P(state.p, state.key)) : fixed(P(state.p, state.key), 3);
    return t(state.back ? "gradientOfCell" : "looksAtCell", {
      token: columnText(state.p),
      key: columnText(state.key),
      w,
    });
  },
};
