// Beside the large table: one number large, what the shades mean, and the cell under the pointer.

/** A cell's number, in the corner that the mask leaves empty. */
function reading(shown, sizes, i, j) {
  if (shown.square || columns.shown.length < 6 || (state.back && i >= SCORED)) return null;
  const value = shown.value(i, j);
  if (value === null) return null;
  const [text, below] = {
    weight: () => [fixed(value, 3), `${t("movesThere")} ${digits(movedFrom(state.head, i, j), 3)}`],
    mark: () => [
      inPower(value, sizes.power),
      `${tenTo(sizes.power)} ${state.step === 5 ? t("perUnit") : "nat"}`,
    ],
    moved: () => [digits(value, 3), ""],
    grey: () => [digits(value, 3), ""],
  }[shown.drawn]();
  const x = columns.width;
  return s(
    "g",
    { class: "reading" },
    words(x, 12, `${columnText(i)} → ${columnText(j)}`, "token end"),
    words(x, 39, text, "big end", { "data-reading": "" }),
    words(x, 56, below, "soft end small"),
  );
}

/** The cell under the pointer, or none: outlined, its tokens marked, its numbers filled in. */
function previewCell(i, j) {
  hint(i, j);
  const [a, b] = i === null ? [state.p, state.key] : [i, j];
  if (b > a) return;
  const shown = stepTable(state.step, state.back, state.head);
  const corner = reading(shown, measured(shown), a, b);
  if (corner) document.querySelector("#v-head .reading")?.replaceWith(corner);
  document.querySelector("#v-head .numbers")?.replaceWith(inNumbers(a, b));
}

function tableLegend(shown, sizes) {
  if (shown.drawn === "mark")
    return legend(h("span", {}, t("times", { power: tenTo(sizes.power) })));
  const grey = shown.drawn === "grey";
  const share = (i) => (i / 6) ** (grey ? 1 : 2);
  const stops = upTo(7).map((i) => `${css(shade(share(i), grey))} ${(100 * i) / 6}%`);
  const text = {
    grey: () => t("scaleRow"),
    weight: () => t("scaleRoot"),
    moved: () => t("scaleMoved", { most: digits(sizes.most, 3) }),
  }[shown.drawn]();
  const scale = `width:98px;height:10px;background:linear-gradient(90deg,${stops})`;
  return h("p", { class: "legend" }, h("span", { style: scale }), text);
}

/** The row and column of a token under the pointer, drawn over the large table. */
function pointInTable(row, key) {
  const { pointer, rows, high } = views.head;
  if (!pointer) return;
  const place = columns.of.get(key);
  pointer.replaceChildren(
    ...(key === null || place === undefined
      ? []
      : [
          rect(
            edge(place),
            rows.indexOf(key) * high,
            columns.step,
            (rows.length - rows.indexOf(key)) * high,
            "pointer",
            { style: "pointer-events:none" },
          ),
          ...(row === null
            ? []
            : [
                rect(edge(place), rows.indexOf(row) * high, columns.step, high, "frame", {
                  style: "pointer-events:none",
                }),
              ]),
        ]),
  );
}
