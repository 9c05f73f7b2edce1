// What if a part were silent: the exact change of the loss beside the gradient's estimate.

const HEADS_AT_ONCE = 24;

views.silent = {
  reads: ["lang", "head", "moreParts"],
  draw(figure) {
    const mlps = DATA.mlps.map((mlp, n) => ({ ...mlp, name: `${n}·MLP`, head: -1 }));
    const all = DATA.heads.map((each, i) => ({ ...each, name: address(i), head: i }));
    this.list = this.inOrder(this.thatMatter(all));
    const scale = this.scale([...mlps, ...this.list]);
    const [high, gap] = [16, 14]; // of a row; between networks and heads
    const top = 26 + mlps.length * high + gap;
    const bottom = top + this.list.length * high;
    const figureHeight = bottom + 22;
    const nodes = [
      this.axis(scale, bottom),
      this.inOrder(mlps).map((part, i) => this.row(part, 26 + i * high, scale)),
      this.list.map((part, i) => this.row(part, top + i * high, scale)),
      words(scale.x(0) - 10, bottom + 16, t("better"), "soft end small"),
      words(scale.x(0) + 10, bottom + 16, t("worse"), "soft small"),
    ];
    const left = all.length - HEADS_AT_ONCE;
    figure.replaceChildren(
      this.legend(),
      drawing(figureHeight, t("silentTitle"), nodes),
      ...(left > 0 ? [fold("moreParts", t("moreHeads", { n: left }))] : []),
    );
  },
  inOrder: (parts) => parts.sort((a, b) => b.change - a.change),
  /** The heads that change the loss most, and the chosen one. */
  thatMatter(all) {
    if (state.moreParts) return all;
    const bySize = [...all].sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
    return bySize.filter((part, i) => i < HEADS_AT_ONCE || part.head === state.head);
  },
  legend() {
    const dot = (kind) =>
      s(
        "svg",
        {
          width: 11,
          height: 11,
          viewBox: "0 0 11 11",
          style: "display:inline-block",
          "aria-hidden": "true",
        },
        s("circle", { cx: 5.5, cy: 5.5, r: 4, class: kind }),
      );
    return h(
      "p",
      { class: "legend" },
      dot("ink"),
      t("exact"),
      " ",
      dot("est"),
      t("firstOrder"),
      " · ",
      t("changeOf"),
    );
  },
  /** From 0 to both sides; what is three times as large as all others becomes an arrow. */
  scale(parts) {
    const ends = (sign) =>
      parts
        .flatMap(({ change, estimate }) => [sign * change, sign * estimate])
        .sort((a, b) => b - a);
    const limit = (sign) => {
      const all = ends(sign).filter((x) => x > 0);
      const cut = all.findIndex((x, i) => i + 1 < all.length && x < 3 * all[i + 1]);
      return all[Math.max(0, Math.min(cut, 3))] ?? 0;
    };
    const [left, right] = [limit(-1), limit(1)];
    const [from, to] = [columns.gutter + 8, columns.width - 84];
    const per = (to - from) / (left + right || 1);
    const x = (v) => from + (Math.min(right, Math.max(-left, v)) + left) * per;
    return { x, left, right, to };
  },
  axis({ x, left, right }, bottom) {
    const step = niceStep(left + right, columns.wide ? 5 : 3);
    const nodes = [words(columns.width, 12, t("exact").split(/[ （]/)[0], "soft end small")];
    for (let v = Math.ceil(-left / step) * step; v <= right * 1.0001; v += step) {
      const zero = Math.abs(v) < step / 2;
      nodes.push(
        line(x(v), 18, x(v), bottom, zero ? "axis" : "dots"),
        words(x(v), 12, zero ? "0" : signedDigits(Number(v.toPrecision(6)), 1), "soft mid small"),
      );
    }
    return nodes;
  },
  row({ name, head, change, estimate }, y, { x, left, right, to }) {
    const out = change > right * 1.0001 || change < -left * 1.0001;
    const [a, b] = [x(estimate), x(change)];
    const end = out && change > 0 ? to + 10 : b;
    const chosen = head === state.head;
    return [
      chosen ? rect(0, y, columns.width, 16, "band") : null,
      words(0, y + 12, name, `small ${chosen ? "bold" : ""}`),
      line(columns.gutter, y + 8, to + 8, y + 8),
      line(a, y + 8, end, y + 8, "axis"),
      s("circle", { cx: a, cy: y + 8, r: 4, class: "est" }),
      out
        ? s("path", {
            d: change > 0 ? `M${end} ${y + 4}l7 4l-7 4z` : `M${b} ${y + 4}l-7 4l7 4z`,
            class: "ink",
          })
        : s("circle", { cx: b, cy: y + 8, r: 3.4, class: "ink" }),
      words(columns.width, y + 12, signed(change, 3), `end small ${chosen ? "bold" : ""}`, {
        "data-change": name,
      }),
      rect(0, y, columns.width, 16, "hit", { onclick: () => head >= 0 && set({ head }) }),
    ];
  },
  key(step) {
    const place = this.list.findIndex((each) => each.head === state.head);
    const next = this.list[place + step.y];
    if (step.y && next) set({ head: next.head });
    return Boolean(step.y);
  },
  spoken: () => `${address(state.head)}: ${signed(DATA.heads[state.head].change, 4)}`,
};
