// Chapter 9: what each sublayer adds to the stream at the followed token, and what it says there.

const ROW = 20;

views.stream = {
  reads: ["p", "back", "lang", "row", "head"],
  draw(figure) {
    const height = columns.wide ? ROW : 35;
    const top = columns.wide ? 26 : 20;
    const W = columns.width;
    const room = columns.wide
      ? { bars: columns.gutter, end: 400, guesses: 440, rank: W }
      : { bars: columns.gutter, end: W - 8, guesses: columns.gutter + 40, rank: W };
    const nodes = [this.heads(room)];
    const scale = this.scale(room);
    for (const [r, name] of ROWS.entries()) {
      const y = top + r * height;
      if (r === chosenRow()) nodes.push(rect(0, y, W, height, "band"));
      nodes.push(words(0, y + 14, name, r % 2 || r === 0 ? "" : "soft"));
      nodes.push(...(state.back ? this.slope(r, y, scale) : this.added(r, y, scale)));
      nodes.push(...this.guesses(r, y, room));
      if (r % 2 === 0 && r > 0 && r < ROWS.length - 1)
        nodes.push(line(0, y + height, W, y + height));
      nodes.push(rect(0, y, W, height, "hit", { "data-row": r, onclick: () => this.choose(r) }));
    }
    if (!state.back && columns.wide) nodes.push(this.steps(top, height, scale));
    figure.replaceChildren(
      drawing(top + ROWS.length * height + 4, t(state.back ? "alongGradient" : "sizes"), nodes),
      legend(),
    );
  },
  choose(r) {
    const attention = r > 0 && r % 2 === 1;
    set(attention ? { row: r, head: ((r - 1) >> 1) * H + (state.head % H) } : { row: r });
  },
  heads(room) {
    const { p, back } = state;
    const power = powerFor(ROWS.map((_, r) => at(DATA.stream.slope, r, p)));
    const left = back
      ? `${t("alongGradient")}${unit(power)}`
      : t(columns.wide ? "sizes" : "sizeOnly");
    if (!columns.wide) return [words(room.bars, 12, left, "soft small")];
    return [
      words(room.bars, 12, left, "soft"),
      words(room.guesses, 12, t("lensSays"), "soft"),
      words(
        room.rank,
        12,
        t("rankOf", { token: quoted(tokenText(label(targetAt(p)), 8)) }),
        "soft end",
      ),
    ];
  },
  scale(room) {
    const { p, back } = state;
    const values = ROWS.map((_, r) => at(back ? DATA.stream.slope : DATA.stream.added, r, p));
    const most =
      largest(back ? values : [...values, ...ROWS.map((_, r) => at(DATA.stream.size, r, p))]) || 1;
    if (!back) return { zero: room.bars, per: (room.end - room.bars - 44) / most };
    const span = room.end - room.bars;
    return { zero: room.bars + span / 2, per: (span / 2 - 50) / most, power: powerFor(values) };
  },
  added(r, y, { zero, per }) {
    const value = at(DATA.stream.added, r, state.p);
    return [
      bar(zero, zero + value * per, y + 5, 9, r === chosenRow() ? "ink" : "forward"),
      words(zero + value * per + 5, y + 14, fixed(value, 1), "soft small halo-text"),
    ];
  },
  steps(top, height, { zero, per }) {
    const x = (r) => (zero + at(DATA.stream.size, r, state.p) * per).toFixed(1);
    const path = ROWS.map(
      (_, r) => `${r ? "H" : "M"}${x(r)}${r ? "" : ` ${top}`}V${top + (r + 1) * height}`,
    );
    return s("path", { d: path.join(""), class: "path" });
  },
  slope(r, y, { zero, per, power }) {
    const value = at(DATA.stream.slope, r, state.p);
    const x = zero + value * per;
    const side = value > 0 ? [x + 5, ""] : [x - 5, "end"];
    return [
      line(zero, y + 1, zero, y + 19, "thin"),
      value ? bar(zero, x, y + 5, 9, gradientKind(value)) : null,
      words(side[0], y + 14, inPower(value, power), `soft small ${side[1]}`),
    ];
  },
  guesses(r, y, room) {
    const baseline = columns.wide ? y + 14 : y + 30;
    const span = (room.rank - 40 - room.guesses) / 3;
    const most = columns.wide ? 8 : 7;
    const target = targetAt(state.p);
    const found = upTo(columns.wide ? 3 : 2).flatMap((i) => {
      const [id, p] = [at(DATA.stream.ids, r, state.p, i), at(DATA.stream.p, r, state.p, i)];
      const x = room.guesses + i * (columns.wide ? span : 110);
      const end = x + (columns.wide ? span - 10 : 98);
      const right = id === target;
      return [
        words(x, baseline, tokenText(label(id), most), `token ${right ? "bold" : ""} small`),
        words(end, baseline, probability(p), "soft end small"),
        right ? rect(x, baseline + 3, end - x, 2, "under") : null,
      ];
    });
    const rank = at(DATA.stream.rank, r, state.p);
    return [...found, words(room.rank, baseline, String(rank), rank === 1 ? "end bold" : "end")];
  },
  key(step) {
    if (step.y) this.choose(Math.min(2 * L, Math.max(0, chosenRow() + step.y)));
    else if (step.x) set({ p: neighbour(state.p, step.x) });
    return Boolean(step.x || step.y);
  },
  spoken: () => `${ROWS[chosenRow()]}: ${fixed(at(DATA.stream.added, chosenRow(), state.p), 1)}`,
};
