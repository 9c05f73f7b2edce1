// Chapter 8: the strongest neurons at the followed token, where they fire, what they push.

const AT_FIRST = 8;

views.neurons = {
  reads: ["p", "back", "lang", "neuron", "moreNeurons"],
  draw(figure) {
    const all = DATA.neurons.at.shape[1];
    const many = state.moreNeurons ? all : Math.min(AT_FIRST, all);
    const list = upTo(many).map((i) => at(DATA.neurons.at, state.p, i));
    const values = state.back ? DATA.neurons.slope : DATA.neurons.active;
    const most = largest(list.flatMap((n) => [...at(values, n)])) || 1;
    const low = !state.back && list.some((n) => at(values, n).some((x) => x < -0.25 * most));
    const high = low ? 72 : 52;
    const nodes = list.flatMap((n, i) => this.row(n, i, i * high + 4, most, low));
    const more = t("moreNeurons", { n: all - AT_FIRST, all: (L * F).toLocaleString("en") });
    figure.replaceChildren(
      drawing(many * high, t("neuronsTitle", { token: columnText(state.p) }), nodes),
      legend(),
      ...(all > AT_FIRST ? [fold("moreNeurons", more)] : []),
    );
  },
  row(n, i, y, most, low) {
    const name = `${at(DATA.neurons.layer, n)}·N${at(DATA.neurons.number, n)}`;
    const here = at(DATA.neurons.active, n, state.p);
    const size = Math.abs(here) * at(DATA.neurons.norm, n);
    const base = y + (state.back ? 24 : 26);
    const nodes = [
      i === state.neuron ? rect(0, y - 2, columns.width, low ? 68 : 50, "band") : null,
      words(0, y + 14, name, "data-neuron"),
      words(0, y + 29, t("moves", { x: digits(size, 2) }), "soft small"),
      line(columns.gutter, base, edge(columns.shown.length), base),
    ];
    for (const [place, { token }] of columns.shown.entries()) {
      if (token !== undefined)
        nodes.push(
          state.back
            ? this.slope(n, token, place, base - 11, most)
            : this.fires(n, token, place, base, most),
        );
    }
    nodes.push(...this.pushes(n, here, base + (low ? 34 : 15)));
    nodes.push(
      rect(0, y - 2, columns.width, low ? 68 : 50, "hit", {
        "data-neuron": n,
        onclick: () => set({ neuron: i }),
      }),
    );
    return nodes;
  },
  fires(n, token, place, base, most) {
    const value = at(DATA.neurons.active, n, token);
    const height = (24 * Math.abs(value)) / most;
    const wide = Math.min(36, columns.step - 4);
    const x = middle(place) - wide / 2;
    if (height < 0.8) return null;
    if (value < 0)
      return rect(x + 0.6, base + 0.6, wide - 1.2, Math.max(0.4, height - 1.2), "hollow");
    return rect(
      x,
      base - height,
      wide,
      Math.max(0.5, height),
      token === state.p ? "ink" : "forward",
    );
  },
  slope(n, token, place, y, most) {
    return token < SCORED
      ? mark(middle(place), y, at(DATA.neurons.slope, n, token), most, 20)
      : words(middle(place), y + 5, "–", "faint mid");
  },
  /** A negative activation pushes the other way. */
  pushes(n, here, y) {
    const [up, down] = here < 0 ? ["down", "up"] : ["up", "down"];
    const half = columns.gutter + (columns.width - columns.gutter) / 2;
    const list = (name, room) => {
      let [text, used] = ["", 0];
      for (const id of at(DATA.neurons[name], n)) {
        const next = tokenText(label(id), 10);
        used += monoWidth(`${next}  `, 11.5);
        if (used > room) break;
        text += `${next}  `;
      }
      return text;
    };
    const room = half - columns.gutter - 20;
    const keep = { style: "white-space:pre" };
    return [
      words(columns.gutter + 2, y, "↑", "soft small"),
      words(columns.gutter + 16, y, list(up, room), "token small", keep),
      words(half + 2, y, "↓", "soft small"),
      words(half + 16, y, list(down, room), "token small soft", keep),
    ];
  },
  key(step) {
    const last = Math.min(state.moreNeurons ? 99 : AT_FIRST, DATA.neurons.at.shape[1]) - 1;
    if (step.y) set({ neuron: Math.min(last, Math.max(0, state.neuron + step.y)) });
    else if (step.x) set({ p: neighbour(state.p, step.x), neuron: state.neuron });
    return Boolean(step.x || step.y);
  },
  spoken() {
    const n = at(DATA.neurons.at, state.p, state.neuron);
    return `${at(DATA.neurons.layer, n)}·N${at(DATA.neurons.number, n)}: ${digits(at(DATA.neurons.active, n, state.p), 3)}`;
  },
};
