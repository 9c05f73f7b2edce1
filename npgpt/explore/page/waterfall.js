// Chapter 10: part by part, how the difference of two logits comes about.

/** The parts in the model's order: name, place among the shares, and whether it is a head. */
function partsOf(open) {
  const found = [{ name: "embed", places: [0] }];
  for (let n = 0; n < L; n++) {
    const first = 1 + n * (H + 1);
    const heads = upTo(H).map((i) => first + i);
    found.push({ name: `${n}·attn`, places: heads, opens: n });
    if (open.includes(n))
      found.push(
        ...heads.map((place, i) => ({ name: `${n}·H${i}`, places: [place], head: n * H + i })),
      );
    found.push({ name: `${n}·MLP`, places: [first + H] });
  }
  return [...found, { name: t("biases"), places: [1 + L * (H + 1)] }];
}

views.waterfall = {
  reads: ["p", "back", "lang", "target", "foil", "open", "head"],
  draw(figure) {
    const open = state.open ? state.open.split(",").map(Number) : [];
    const parts = partsOf(open);
    const value = this.values();
    let [total, inBlock] = [0, 0];
    for (const part of parts) {
      part.value = part.places.reduce((sum, place) => sum + value(place), 0);
      if (part.head === undefined) {
        [part.from, inBlock] = [total, total]; // the heads of a block begin where its attention does
        total += part.value;
      } else {
        part.from = inBlock;
        inBlock += part.value;
      }
    }
    const { target, foil } = pair();
    const names = {
      target: tokenText(label(target).replace("␣", "")),
      foil: tokenText(label(foil).replace("␣", "")),
      x: state.back ? "0" : signedDigits(total, 4),
    };
    figure.replaceChildren(
      h("p", { class: "caption" }, say(state.back ? "slopeIs" : "differenceIs", names)),
      this.drawn(parts, total),
    );
  },
  values() {
    const { p, back } = state;
    if (back) return (place) => at(DATA.shares.slope, p, place);
    const ids = [...at(DATA.answers.ids, p)];
    const [a, b] = [pair().target, pair().foil].map((id) => ids.indexOf(id));
    return (place) => at(DATA.shares.logits, p, place, a) - at(DATA.shares.logits, p, place, b);
  },
  drawn(parts, total) {
    const ends = parts.flatMap((part) => [part.from, part.from + part.value]);
    const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
    const end = columns.width - 62;
    const per = (end - columns.gutter) / (high - low || 1);
    const x = (v) => columns.gutter + (v - low) * per;
    const bottom = 22 + parts.length * 18;
    const power = state.back ? powerFor(parts.map((part) => part.value)) : 0;
    const number = (v) => (state.back ? inPower(v, power) : signed(v, 3));
    const nodes = [
      ...this.axis(low, high, x, bottom, power),
      line(x(0), 18, x(0), bottom + 24, "axis"),
    ];
    for (const [i, part] of parts.entries()) {
      const y = 22 + i * 18;
      if (part.head === state.head || part.opens === layerOf(state.head))
        nodes.push(rect(0, y, columns.width, 18, "band"));
      const kind = state.back ? gradientKind(part.value) : part.value > 0 ? "forward" : "hollow";
      const isHead = part.head !== undefined;
      const arrow =
        part.opens === undefined
          ? ""
          : state.open.split(",").includes(String(part.opens))
            ? "▾ "
            : "▸ ";
      nodes.push(
        words(isHead ? 24 : 12, y + 13, part.name, isHead ? "soft small" : ""),
        words(0, y + 13, arrow, "soft"),
        bar(x(part.from), x(part.from + part.value), y + (isHead ? 6 : 4), isHead ? 7 : 11, kind),
        words(columns.width, y + 13, number(part.value), isHead ? "soft end small" : "end", {
          "data-share": part.name,
        }),
        rect(0, y, columns.width, 18, "hit", { onclick: () => this.choose(part) }),
      );
    }
    nodes.push(
      line(0, bottom + 3, columns.width, bottom + 3, "axis"),
      words(12, bottom + 18, t("sum"), "bold"),
      bar(x(0), x(total), bottom + 9, 10, total < 0 ? "hollow black" : "ink"),
      words(columns.width, bottom + 18, number(total), "end bold", { "data-share": "sum" }),
    );
    return drawing(bottom + 26, t("sum"), nodes);
  },
  axis(low, high, x, bottom, power) {
    const step = niceStep(high - low, columns.wide ? 5 : 3);
    const found = [];
    for (let v = Math.ceil(low / step) * step; v <= high; v += step) {
      const text = state.back
        ? inPower(v, power) + (Math.abs(v) < step / 2 ? unit(power) : "")
        : digits(Math.abs(v) < step / 2 ? 0 : Number(v.toPrecision(6)), 2);
      found.push(line(x(v), 18, x(v), bottom, "dots"), words(x(v), 12, text, "soft mid small"));
    }
    return found;
  },
  choose(part) {
    if (part.head !== undefined) return set({ head: part.head });
    if (part.opens === undefined) return undefined;
    const open = new Set(state.open ? state.open.split(",") : []);
    if (!open.delete(String(part.opens))) open.add(String(part.opens));
    return set({ open: [...open].sort().join(",") });
  },
  key(step) {
    const layer = Math.min(L - 1, Math.max(0, layerOf(state.head) + step.y));
    if (step.enter) this.choose({ opens: layerOf(state.head) });
    else if (step.y) set({ head: layer * H + (state.head % H) });
    return Boolean(step.y || step.enter);
  },
};
