// The figure in view as an SVG file, and the address of what is seen.

/** The drawing nearest to the middle of the window. */
function figureInView() {
  const middleY = innerHeight / 2;
  const distance = (figure) => {
    const { top, bottom } = figure.getBoundingClientRect();
    return Math.max(top - middleY, middleY - bottom, 0);
  };
  const all = [...document.querySelectorAll("figure")].filter((figure) =>
    figure.querySelector("svg[role=img]"),
  );
  return all.reduce((best, figure) => (distance(figure) < distance(best) ? figure : best));
}

/** A drawing that stands alone: what its style sheet said is written on every element. */
function standalone(figure) {
  const drawn = figure.querySelector("svg[role=img]");
  const copy = drawn.cloneNode(true);
  const names = [
    "fill",
    "stroke",
    "stroke-width",
    "stroke-dasharray",
    "font",
    "text-anchor",
    "opacity",
  ];
  const copies = copy.querySelectorAll("*");
  for (const [i, element] of drawn.querySelectorAll("*").entries()) {
    const style = getComputedStyle(element);
    copies[i].setAttribute(
      "style",
      names.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"),
    );
  }
  const canvas = figure.querySelector("canvas");
  if (canvas)
    copy.prepend(
      s("image", { href: canvas.toDataURL(), width: canvas.width / 2, height: canvas.height / 2 }),
    );
  const [width, height] = [Number(copy.getAttribute("width")), Number(copy.getAttribute("height"))];
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.prepend(
    s("rect", {
      x: -12,
      y: -20,
      width: width + 24,
      height: height + 40,
      fill: getComputedStyle(document.body).backgroundColor,
    }),
  );
  copy.setAttribute("viewBox", `-12 -20 ${width + 24} ${height + 40}`);
  return new XMLSerializer().serializeToString(copy);
}

function saveFigure() {
  const figure = figureInView();
  const blob = new Blob([standalone(figure)], { type: "image/svg+xml" });
  const anchor = h("a", { href: URL.createObjectURL(blob), download: `${figure.id.slice(2)}.svg` });
  anchor.click();
  URL.revokeObjectURL(anchor.href);
}

async function copyLink(event) {
  const where = event.target;
  writeAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    where.textContent = t("copied");
  } catch {
    where.textContent = location.hash || "#";
  }
}
