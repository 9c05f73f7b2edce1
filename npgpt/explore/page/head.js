// One head large: a row for each token, and the six steps one can go through.

views.head = {
  reads: ["p", "key", "head", "step", "back", "lang", "scheme"],
  draw(figure) {
    const { head, p, key, step, back } = state;
    const title = say("headTitle", { address: address(head), layer: String(layerOf(head)), head: String(head % H), token: quoted(columnText(p)), key: quoted(columnText(key)) });
    const top = [h("p", { class: "caption" }, title), this.buttons(), h("p", { class: "caption" }, strong(`${step} ${t(`step${step}`)}`), " — ", this.says())];
    if (!table("probs", head)) return figure.replaceChildren(...top, h("p", { class: "note" }, t("noTable")));
    const body = step === 1 ? vectorBars() : this.table();
    figure.replaceChildren(...top, ...body, formulaLine(), ...productBars());
  },
  buttons() {
    const order = state.back ? [6, 5, 4, 3, 2, 1] : [1, 2, 3, 4, 5, 6];
    const one = (n) => button([String(n), h("span", {}, ` ${t(`step${n}`)}`)], n === state.step, () => set({ step: n }), { "data-step": n, "aria-label": `${n} ${t(`step${n}`)}` });
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
    nodes.push(...this.frames(rows, high), this.reading(shown, sizes));
    this.rows = rows;
    this.high = high;
    this.pointer = s("g", {});
    nodes.push(this.pointer);
    return [drawing(height + 2, t("headTitle", { address: address(head), layer: layerOf(head), head: head % H, token: columnText(state.p), key: columnText(state.key) }), nodes), this.legend(shown, sizes)];
  },
  row(shown, sizes, i, y, high) {
    const bold = i === state.p ? "bold" : "";
    const name = columnText(i, columns.wide ? 12 : 9);
    const nodes = [words(columns.gutter - 8, y + high / 2 + 4, name, `token end ${bold}`)];
    if (state.back && i >= SCORED) {
      nodes.push(rect(columns.gutter, y, columns.step * columns.shown.length, high - 1, "outline"), words(columns.gutter + 8, y + 16, t("notScored"), "soft small"));
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
    if (j > i && !shown.square) {
      return state.step === 4 && !state.back ? [words(x + step / 2, y + high / 2 + 4, "–", "faint mid")] : [];
    }
    const value = shown.value(i, j);
    if (value === null) return [words(x + step / 2, y + high / 2 + 4, "·", "faint mid")];
    const more = { "data-cell": `${i} ${j}`, onclick: () => j <= i && set({ p: i, key: j }), onpointerenter: () => this.preview(i, j), onpointerleave: () => this.preview(null, null) };
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
      rect(x + 0.5, y + 0.5, step - 1, high - 1, "cell", { fill: css(colour), style: "cursor:pointer", ...more }),
      words(x + step / 2, y + high / 2 + 4, text, `mid ${small}`, { style: `fill:${inkOn(colour)};pointer-events:none` }),
    ];
  },
  /** The folded tokens of a row together, so that it still sums to what it should. */
  gap(shown, column, i, x, y, high) {
    if (column.from > i) return [];
    let sum = 0;
    if (shown.sums) for (let j = column.from; j < Math.min(column.to, i + 1); j++) sum += shown.value(i, j);
    const text = !shown.sums ? "⋯" : shown.drawn === "weight" ? weight(sum) : scientific(sum);
    return [
      shown.sums ? rect(x + 1.5, y + 1.5, columns.step - 3, high - 3, "blank") : null,
      columns.step >= 40 || shown.drawn === "weight" || !shown.sums ? words(x + columns.step / 2, y + high / 2 + 4, text, "soft mid tiny") : null,
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
  /** The chosen number large, in the corner that the mask leaves empty. */
  reading(shown, sizes) {
    const [i, j] = [state.p, state.key];
    const place = shown.square ? null : columns.width;
    if (place === null || columns.shown.length < 6) return null;
    const value = shown.value(i, j);
    const text = shown.drawn === "weight" ? fixed(value, 3) : shown.drawn === "mark" ? inPower(value, sizes.power) : digits(value, 3);
    const below = shown.drawn === "mark" ? `${tenTo(sizes.power)} ${state.step === 5 ? t("perUnit") : "nat"}`
      : shown.drawn === "weight" ? `${t("movesThere")} ${digits(movedFrom(state.head, i, j), 3)}` : "";
    const large = s("g", { class: "reading" },
      words(place, 12, `${columnText(i)} → ${columnText(j)}`, "token end"),
      words(place, 39, text, "big end", { "data-reading": "" }),
      words(place, 56, below, "soft end small"));
    return large;
  },
  /** A cell under the pointer: outlined, its tokens marked above, its number in the corner. */
  preview(i, j) {
    hint(i, j);
    const corner = document.querySelector("#v-head .reading");
    if (!corner) return;
    const shown = stepTable(state.step, state.back, state.head);
    const [a, b] = i === null ? [state.p, state.key] : [i, j];
    if (b > a) return;
    corner.replaceWith(this.reading({ ...shown, value: () => shown.value(a, b) }, measured(shown)));
    const named = document.querySelector("#v-head .reading text");
    named.textContent = `${columnText(a)} → ${columnText(b)}`;
  },
  legend(shown, sizes) {
    if (shown.drawn === "mark") {
      const power = h("span", {}, t("times", { power: tenTo(sizes.power) }));
      return legend(power);
    }
    const grey = shown.drawn === "grey";
    const stops = upTo(7).map((i) => `${css(shade((i / 6) ** (grey ? 1 : 2), grey))} ${(100 * i) / 6}%`);
    const text = grey ? t("scaleRow") : shown.drawn === "weight" ? t("scaleRoot") : t("scaleMoved", { most: digits(sizes.most, 3) });
    return h("p", { class: "legend" }, h("span", { style: `width:98px;height:10px;background:linear-gradient(90deg,${stops})` }), text);
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
    return t(state.back ? "gradientOfCell" : "looksAtCell", { token: columnText(state.p), key: columnText(state.key), w });
  },
};

/** The row and column of a token under the pointer, drawn over the large table. */
function pointInTable(row, key) {
  const { pointer, rows, high } = views.head;
  if (!pointer) return;
  const place = columns.of.get(key);
  pointer.replaceChildren(...(key === null || place === undefined ? [] : [
    rect(edge(place), rows.indexOf(key) * high, columns.step, (rows.length - rows.indexOf(key)) * high, "pointer", { style: "pointer-events:none" }),
    ...(row === null ? [] : [rect(edge(place), rows.indexOf(row) * high, columns.step, high, "frame", { style: "pointer-events:none" })]),
  ]));
}
