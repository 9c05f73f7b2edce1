// All heads as small tables. One scale for all gradients, so that quiet heads look quiet.

const AT_ONCE = 144;

views.gallery = {
  reads: ["back", "lang", "scheme", "sort", "head", "moreHeads", "p"],
  draw(figure) {
    const order = this.order();
    const lay = this.layout(order);
    const canvas = h("canvas", {
      width: columns.width * 2,
      height: lay.height * 2,
      style: `width:${columns.width}px;height:${lay.height}px`,
      "aria-hidden": "true",
    });
    const pen = canvas.getContext("2d");
    pen.scale(2, 2);
    const most = state.back ? largest(DATA.tables.dprobs.values) : 1;
    const inks = inksNow();
    const nodes = [];
    for (const place of lay.places) {
      paintHead(pen, inks, place, lay.size, most);
      nodes.push(...this.label(place, lay));
    }
    if (lay.rows)
      nodes.push(
        ...upTo(H).map((i) =>
          words(0, lay.top(i) + 16 + lay.size / 2, t("headRow", { h: String(i) }), "soft"),
        ),
      );
    const title = state.back ? "galleryBack" : lay.rows ? "galleryTitle" : "galleryFlow";
    const missing = L * H - DATA.tables.kept.length;
    figure.replaceChildren(
      h("p", { class: "caption" }, say(title, { n: String(L * H), last: String(L - 1) })),
      this.choices(),
      h(
        "div",
        { style: "position:relative" },
        canvas,
        drawing(lay.height, t(title, { n: L * H, last: L - 1 }), nodes),
      ),
      ...(order.length < L * H || state.moreHeads
        ? [fold("moreHeads", t("moreHeads", { n: L * H - AT_ONCE }))]
        : []),
      ...(missing ? [h("p", { class: "note" }, t("leftOut", { n: missing }))] : []),
    );
  },
  choices() {
    const one = (name) => button(t(`by${name}`), state.sort === name, () => set({ sort: name }));
    return h(
      "div",
      { class: "choices", role: "group", "aria-label": t("arrange") },
      h("span", {}, t("arrange")),
      ORDERS.map(one),
    );
  },
  order() {
    const jobs = ["back", "same", "first", "mixed", "spread"];
    const value = {
      place: (i) => i,
      job: (i) => jobs.indexOf(DATA.heads[i].job) * 10 - DATA.heads[i].share,
      moved: (i) => -at(DATA.moved.added, i, state.p),
      gradient: (i) => -DATA.heads[i].pull,
    }[state.sort];
    return this.thatMatter().sort((a, b) => value(a) - value(b));
  },
  /** Of very many heads those that the loss misses most, the chosen one, and the brightest. */
  thatMatter() {
    const heads = upTo(L * H);
    if (heads.length <= AT_ONCE || state.moreHeads) return heads;
    const change = (i) => Math.abs(DATA.heads[i].change);
    const first = [state.head, starAt(state.p)];
    const rest = heads.filter((i) => !first.includes(i)).sort((a, b) => change(b) - change(a));
    return [...new Set([...first, ...rest])].slice(0, AT_ONCE);
  },
  layout(order) {
    const room = columns.width - columns.gutter;
    const grid = state.sort === "place" && room / L >= 46 && order.length === L * H;
    const across = grid ? L : Math.min(8, Math.floor(columns.width / 86));
    const many = order.length > 60 && !grid ? Math.floor(columns.width / 60) : across;
    const pitch = grid ? room / L : columns.width / many;
    const size = Math.floor(Math.min(84, pitch - 10));
    const [left, tall] = [grid ? columns.gutter : 0, size + 26];
    const top = (row) => row * tall;
    const places = order.map((head, i) => {
      const [column, row] = grid ? [layerOf(head), head % H] : [i % many, Math.floor(i / many)];
      return { head, x: left + column * pitch, y: top(row) + 16, column, row };
    });
    const height = top(Math.max(...places.map((each) => each.row)) + 1);
    this.places = places;
    return { places, size, height, top, pitch, rows: grid };
  },
  label({ head, x, y }, { size, pitch }) {
    const chosen = head === state.head;
    const star = DATA.stars[state.p];
    const isStar = star && star.layer * H + star.head === head && star.weight >= 0.3;
    const most = Math.floor((pitch - 56) / 12);
    const job = isStar
      ? `${columnText(state.p, most)} → ${columnText(star.key, most)}`
      : jobText(DATA.heads[head]);
    const text = s(
      "text",
      { x, y: y - 5, class: "small" },
      s("tspan", { class: chosen ? "bold" : "" }, address(head)),
      pitch >= 84 ? s("tspan", { class: "soft tiny", dx: 4 }, job) : null,
    );
    return [
      text,
      line(x, y, x, y + size),
      line(x, y + size, x + size, y + size),
      rect(x - 3, y - 17, Math.min(pitch - 3, size + 8), size + 21, chosen ? "hit chosen" : "hit", {
        "data-head": head,
        onclick: () => set({ head, row: -1 }),
      }),
    ];
  },
  key(step) {
    const here = this.places.find((each) => each.head === state.head) ?? this.places[0];
    const next = this.places.find(
      (each) => each.column === here.column + step.x && each.row === here.row + step.y,
    );
    if (next) set({ head: next.head, row: -1 });
    return true;
  },
  spoken: () => `${address(state.head)}, ${jobText(DATA.heads[state.head])}`,
};
