// Draws the charts in the colours of the page as they come into view, filters what is shown, sorts tables, saves files.
const facets = JSON.parse(document.getElementById("facets")?.textContent ?? "[]");
const filters = document.getElementById("filters");
const drawn = new Map(); // chart element → what Vega made of it
let queue = Promise.resolve();

// What the page carries is compressed: base64 of gzip.
function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

// --- charts

const specs = document.getElementById("specs") ? await unpack(document.getElementById("specs").textContent).json() : [];

function theme(spec) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const text = { labelColor: colour("--soft"), titleColor: colour("--soft"), labelFontSize: 11, titleFontSize: 11 };
  return {
    background: "transparent",
    font: getComputedStyle(document.body).fontFamily,
    view: { stroke: null },
    axis: { ...text, titleFontWeight: "normal", gridColor: colour("--grid"), gridOpacity: 0.7, domainColor: colour("--line"), tickColor: colour("--line") },
    legend: { ...text, orient: "top", symbolStrokeColor: colour("--soft"), offset: 4, disable: filters !== null && "params" in spec }, // the page has a key
    tick: { color: colour("--ink") },
  };
}

async function draw(element) {
  drawn.get(element)?.finalize();
  const spec = specs[Number(element.dataset.chart)];
  const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, config: theme(spec) };
  try {
    const made = await window.vegaEmbed(element, spec, options);
    drawn.set(element, made);
    await put(made.view);
  } catch (error) {
    element.textContent = `This chart could not be drawn: ${error.message}`;
  }
}

// One drawing at a time: a change of theme waits for the charts that are being drawn.
function enqueue(element, again = false) {
  queue = queue.then(() => {
    if (again || !drawn.has(element)) return draw(element);
  });
}

const charts = [...document.querySelectorAll(".chart")];
const seen = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      enqueue(target);
    }
  },
  { rootMargin: "800px" },
);
for (const element of charts) seen.observe(element);

// The rest is drawn when there is nothing else to do, so that the whole page can be printed.
const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 50));
function drawRest() {
  const next = charts.find((element) => !drawn.has(element) && element.offsetWidth);
  if (!next) return;
  enqueue(next);
  queue = queue.then(() => void idle(drawRest));
}
idle(drawRest);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const element of drawn.keys()) enqueue(element, true);
});

// --- filters

function away() {
  return filters ? [...filters.querySelectorAll("input:not(:checked)")].map((box) => box.value) : [];
}

async function put(view) {
  try {
    await view.signal("hidden", away()).runAsync();
  } catch {
    // a chart without series has no such signal
  }
}

function choose() {
  const chosen = [...filters.querySelectorAll("select")].filter((menu) => menu.value);
  const kept = facets.map((facet) => chosen.every((menu) => facet[menu.name] === menu.value));
  for (const element of document.querySelectorAll("[data-groups]")) {
    const about = element.dataset.groups.split(" ").filter(Boolean).map(Number);
    element.toggleAttribute("data-hidden", about.length > 0 && !about.some((group) => kept[group]));
  }
  const count = kept.filter(Boolean).length;
  document.getElementById("shown").textContent = chosen.length ? `${count} of ${kept.length} model × phase shown` : "";
  idle(drawRest);
}

if (filters) {
  filters.hidden = false;
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("change", (event) => {
    if (event.target.type !== "checkbox") choose();
    else for (const made of drawn.values()) put(made.view);
  });
}

// --- tables

function key(row, column) {
  const cell = row.cells[column];
  const { value } = cell.dataset;
  if (value === undefined) return cell.textContent.trim();
  return value === "inf" ? Infinity : Number(value);
}

function order(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === typeof b) return a.localeCompare(b);
  return typeof a === "number" ? -1 : 1;
}

function sortBy(header) {
  const ascending = header.getAttribute("aria-sort") !== "ascending";
  const body = header.closest("table").tBodies[0];
  const rows = [...body.rows].sort((a, b) => order(key(a, header.cellIndex), key(b, header.cellIndex)));
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  body.append(...(ascending ? rows : rows.reverse()));
}

function makeSortable(part) {
  for (const header of part.querySelectorAll("thead th")) {
    const button = document.createElement("span"); // a <button> would keep the header from repeating on each printed page
    button.setAttribute("role", "button");
    button.tabIndex = 0;
    button.append(...header.childNodes);
    button.addEventListener("click", () => sortBy(header));
    button.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sortBy(header);
    });
    header.append(button);
  }
}

makeSortable(document);

// --- folded tables, links into them, and files

async function unfold(fold) {
  const packed = fold.querySelector(".packed");
  if (packed) {
    packed.outerHTML = await unpack(packed.dataset.html).text();
    makeSortable(fold);
    if (filters) choose();
  }
  fold.open = true;
}

async function follow() {
  const id = decodeURIComponent(location.hash.slice(1));
  if (!id) return;
  const folds = [...document.querySelectorAll(`#${CSS.escape(id.split("-")[0])} details.fold`)];
  for (const fold of folds.filter((one) => one.querySelector(".packed"))) {
    if (document.getElementById(id)) break;
    await unfold(fold);
  }
  const target = document.getElementById(id);
  if (!target?.closest("details.fold")) return;
  await unfold(target.closest("details.fold"));
  target.scrollIntoView();
}

for (const fold of document.querySelectorAll("details.fold")) {
  fold.addEventListener("toggle", () => fold.open && unfold(fold));
}
addEventListener("hashchange", follow);
follow();

async function save(link) {
  const content = await unpack(link.href.split(",")[1]).blob();
  const copy = document.createElement("a");
  copy.href = URL.createObjectURL(new Blob([content], { type: link.dataset.media }));
  copy.download = link.dataset.name;
  copy.click();
  setTimeout(() => URL.revokeObjectURL(copy.href), 1000);
}

for (const link of document.querySelectorAll("a.file")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    save(link);
  });
}
