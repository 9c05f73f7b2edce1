// The small tables of the gallery, painted on a canvas: shades forward, marks on the way back.

const SMALLEST_MARK = 2.4; // pixels of a cell in which a square can be hollow

/** The colours of the scheme, looked up once for all cells. */
function inksNow() {
  const style = getComputedStyle(document.documentElement);
  const named = ["raises", "lowers", "paper"].map((name) => [
    name,
    style.getPropertyValue(`--${name}`),
  ]);
  return { ...Object.fromEntries(named), shades: upTo(257).map((i) => shade(i / 256)) };
}

/** A head's table at (x, y); `most` is the largest gradient of all heads. */
function paintHead(pen, inks, { head, x, y }, size, most) {
  const values = table(state.back ? "dprobs" : "probs", head);
  if (!values) return;
  const cell = size / T;
  if (state.back && cell >= SMALLEST_MARK) return paintMarks(pen, inks, values, x, y, cell, most);
  paintPixels(pen, inks, values, x, y, size, most);
  if (cell >= 4) paintLines(pen, inks.paper, x, y, size);
}

function paintMarks(pen, { raises, lowers }, values, x, y, cell, most) {
  pen.lineWidth = 0.9;
  [pen.fillStyle, pen.strokeStyle] = [raises, lowers];
  for (let i = 0; i < T; i++) {
    for (let j = 0; j <= i; j++) {
      const side = Math.sqrt(Math.abs(values(i, j)) / most) * (cell + 1);
      if (side < 0.5) continue;
      const [left, top] = [x + (j + 0.5) * cell - side / 2, y + (i + 0.5) * cell - side / 2];
      const inner = Math.max(0.3, side - 0.9);
      if (values(i, j) > 0) pen.fillRect(left, top, side, side);
      else pen.strokeRect(left + 0.45, top + 0.45, inner, inner);
    }
  }
}

/** One pixel a cell, then as large as the table is. */
function paintPixels(pen, { shades }, values, x, y, size, most) {
  const small = h("canvas", { width: T, height: T });
  const image = small.getContext("2d").createImageData(T, T);
  const [raises, lowers] = isDark()
    ? [
        [240, 151, 90],
        [179, 162, 242],
      ]
    : [
        [168, 74, 8],
        [90, 62, 156],
      ];
  for (let i = 0; i < T; i++) {
    for (let j = 0; j <= i; j++) {
      const value = values(i, j);
      const place = 4 * (i * T + j);
      const colour = !state.back ? shades[Math.round(256 * value)] : value > 0 ? raises : lowers;
      [image.data[place], image.data[place + 1], image.data[place + 2]] = colour;
      image.data[place + 3] = state.back ? 255 * Math.sqrt(Math.abs(value) / most) : 255;
    }
  }
  small.getContext("2d").putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = T > 2 * size;
  pen.drawImage(small, x, y, size, size);
}

/** Thin lines of paper between the cells. */
function paintLines(pen, paper, x, y, size) {
  pen.strokeStyle = paper;
  pen.lineWidth = 0.6;
  pen.beginPath();
  for (let i = 1; i < T; i++) {
    const shift = (i * size) / T;
    pen.moveTo(x + shift, y + shift - size / T);
    pen.lineTo(x + shift, y + size);
    pen.moveTo(x, y + shift);
    pen.lineTo(x + Math.min(size, shift + size / T), y + shift);
  }
  pen.stroke();
}
