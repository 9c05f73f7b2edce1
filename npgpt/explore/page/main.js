// The chapters in the article's order, and what is drawn again when something changes.

const CHAPTERS = [
  { id: "tokens", numeral: ["5", "五"], figures: ["tokens"] },
  { id: "stream", numeral: ["9", "九"], figures: ["stream", "lens"] },
  { id: "attention", numeral: ["7", "七"], figures: ["gallery", "head"] },
  { id: "neurons", numeral: ["8", "八"], figures: ["neurons"] },
  { id: "answers", numeral: ["10", "十"], figures: ["answers", "waterfall"] },
  { id: "silent", numeral: ["7·8", "七·八"], figures: ["silent"] },
];

/** What the sentences at the head of a chapter are filled with. */
function fillings() {
  const { target, foil } = pair();
  const bare = (id) => quoted(tokenText(label(id).replace(/^␣(?=.)/, "")));
  return {
    tokens: { count: count(T), Count: capital(count(T)) },
    stream: { count: count(2 * L), Count: capital(count(2 * L)), token: chipAt(state.p) },
    neurons: {
      n: String(Math.min(AT_FIRST, DATA.neurons.at.shape[1])),
      L: String(L),
      F: String(F),
      token: quoted(columnText(state.p)),
    },
    answers: { token: chipAt(state.p), target: bare(target), foil: bare(foil) },
  };
}

function build() {
  const figure = (name) => h("figure", { id: `v-${name}`, tabindex: 0, role: "group" });
  document
    .getElementById("chapters")
    .append(
      ...CHAPTERS.map(({ id, figures }) =>
        h(
          "section",
          { class: "chapter", id: `c-${id}` },
          h("div", { class: "numeral", "aria-hidden": "true" }),
          h("div", { class: "main" }, h("h2", {}), h("p", { class: "lead" }), figures.map(figure)),
          h("aside", {}),
        ),
      ),
    );
  document.body.append(
    h("details", { id: "setup", class: "page" }, h("summary", {}), h("pre", {}, SETUP())),
  );
}

function drawChapter({ id, numeral }) {
  const section = document.getElementById(`c-${id}`);
  const zh = state.lang === "zh";
  const values = fillings()[id] ?? {};
  section.querySelector(".numeral").textContent = numeral[zh ? 1 : 0];
  section.querySelector("h2").replaceChildren(...say(`${id}Title`, values));
  const lead = state.back && WORDS[`${id}Back`] ? `${id}Back` : `${id}Lead`;
  section.querySelector(".lead").replaceChildren(...say(lead, values));
  section
    .querySelector("aside")
    .replaceChildren(...margin(id), ...(id === "attention" ? [headCard()] : []));
}

/** Draw a view again, and leave the focus where it was. */
function drawView(name) {
  const box = document.getElementById(views[name].place ?? `v-${name}`);
  const focused = box.contains(document.activeElement) ? document.activeElement : null;
  const pressed = focused?.dataset?.step
    ? `[data-step="${state.step}"]`
    : focused?.dataset?.pick
      ? `[data-pick="${focused.dataset.pick}"]`
      : null;
  const texts = focused && focused !== box ? focused.textContent : null;
  views[name].draw(box);
  if (!views[name].place)
    box.setAttribute(
      "aria-label",
      box.querySelector("svg[role=img]")?.getAttribute("aria-label") ?? box.textContent,
    );
  if (!focused || box.contains(document.activeElement)) return;
  const same = pressed
    ? box.querySelector(pressed)
    : [...box.querySelectorAll("button")].find((each) => each.textContent === texts);
  (same ?? (box.tabIndex >= 0 ? box : null))?.focus({ preventScroll: true });
}

/** Draw what reads one of the changed keys; null: everything, as for another width. */
function drawAll(changed) {
  const folds = isFolded() && ["p", "head", "key"].some((name) => changed?.includes(name));
  const all = changed === null || folds;
  const reads = (keys) => all || keys.some((key) => changed.includes(key));
  if (all || reads(["back", "lang", "scheme"])) drawFrame();
  if (all) layColumns();
  for (const name of Object.keys(views)) if (reads(views[name].reads)) drawView(name);
  for (const chapter of CHAPTERS) {
    const keys = chapter.figures.flatMap((name) => views[name].reads);
    if (reads(["back", "lang", ...keys])) drawChapter(chapter);
  }
}

let printing = false; // always light: paper is
/** Direction, language and scheme of the whole page. */
function drawFrame() {
  const root = document.documentElement;
  root.classList.toggle("back", state.back);
  root.lang = state.lang === "zh" ? "zh-CN" : "en";
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.scheme = printing ? "light" : state.scheme || system;
  document.querySelector("#setup summary").textContent = t("setup");
}

/** The first screen at once, the rest when it has been painted. */
function start() {
  build();
  startState();
  layColumns();
  drawFrame();
  CHAPTERS.forEach(drawChapter);
  redraws.push(drawAll);
  const first = ["title", "strip", "tokens", "stream"];
  first.forEach(drawView);
  const rest = () => {
    if (document.documentElement.dataset.ready) return;
    for (const name of Object.keys(views)) if (!first.includes(name)) drawView(name);
    document.documentElement.dataset.ready = "1";
    listen();
  };
  requestAnimationFrame(() => setTimeout(rest));
  setTimeout(rest, 400); // where nothing is painted: a window in the background
}

function listen() {
  document.addEventListener("keydown", onKey);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(null));
  addEventListener("hashchange", () => set(readAddress()));
  const paper = (now) => ((printing = now), drawAll(null));
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a telephone's address bar comes and goes
    width = innerWidth;
    drawAll(null);
  });
}

start();
