// Draws the charts in the colours of the page, and again when these change; lets a table be sorted by a column.
const holder = document.getElementById("specs");
const specs = holder ? JSON.parse(holder.textContent) : [];
const drawn = new Map();
let queue = Promise.resolve();

function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const text = { labelColor: colour("--soft"), titleColor: colour("--soft"), labelFontSize: 11, titleFontSize: 11 };
  return {
    background: "transparent",
    font: getComputedStyle(document.body).fontFamily,
    view: { stroke: null },
    axis: { ...text, titleFontWeight: "normal", gridColor: colour("--grid"), gridOpacity: 0.7, domainColor: colour("--line"), tickColor: colour("--line") },
    legend: { ...text, orient: "top", symbolStrokeColor: colour("--soft"), offset: 4, titleColor: colour("--soft") },
  };
}

async function draw(element) {
  drawn.get(element)?.finalize();
  const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, config: theme() };
  try {
    drawn.set(element, await window.vegaEmbed(element, specs[Number(element.dataset.chart)], options));
  } catch (error) {
    element.textContent = `This chart could not be drawn: ${error.message}`;
  }
}

// One drawing at a time: a change of theme waits for the charts that are being drawn.
function drawAll() {
  queue = queue.then(async () => {
    for (const element of document.querySelectorAll(".chart")) await draw(element);
  });
}

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

for (const header of document.querySelectorAll("thead th")) {
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

drawAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
