// Filters, copying and timelines of report.html. The page says everything without it.
"use strict";
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// Cases: by status and by a word in their id, sentence or findings.
const search = document.getElementById("search");
const filter = () => {
  const wanted = all(".filters button[aria-pressed=true]").map(button => button.dataset.status);
  const word = search.value.trim().toLowerCase();
  let shown = 0;
  for (const each of all("details.case")) {
    const fits = (wanted.length === 0 || wanted.includes(each.dataset.status))
      && (word === "" || each.dataset.words.includes(word));
    each.classList.toggle("hidden", !fits);
    shown += fits ? 1 : 0;
  }
  document.getElementById("shown").textContent = `${shown} shown`;
};
for (const button of all(".filters button")) {
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
    filter();
  });
}
search.addEventListener("input", filter);

for (const button of all("button.copy")) {
  button.addEventListener("click", async () => {
    const text = button.previousElementSibling.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // A page that was opened from a file may not use the clipboard of every browser.
      getSelection().selectAllChildren(button.previousElementSibling);
      document.execCommand("copy");
    }
    button.textContent = "copied";
    setTimeout(() => button.textContent = "copy", 1500);
  });
}

for (const when of all("time[data-unix]")) {
  when.textContent = new Date(Number(when.dataset.unix) * 1000).toLocaleString();
}

// A link to a case opens it.
const open = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.matches("details")) { target.open = true; target.classList.remove("hidden"); }
};
addEventListener("hashchange", open);
open();

// Timelines: drawn when they are opened.
const SVG = "http://www.w3.org/2000/svg";
const make = (name, attributes, parent) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent.append(element);
  return element;
};
const ROW = 18, LEFT = 84, TOP = 22;

// Bars of one lane that overlap stand below each other.
const stacked = (events, lanes) => {
  const rows = lanes.map(() => []);
  return events.map(event => {
    const ends = rows[event.lane];
    let row = ends.findIndex(end => end <= event.at);
    if (row < 0) row = ends.push(0) - 1;
    ends[row] = event.at + Math.max(event.took, 0) + (event.took > 0 ? 0 : 1e-6);
    return row < 6 ? row : 5;
  });
};

const draw = (box, data, zoom) => {
  const chart = box.querySelector(".chart"), detail = box.querySelector(".detail");
  const events = data.events.map(([at, took, lane, colour, text, cause]) => ({ at, took, lane, colour, text, cause }));
  const end = Math.max(1, ...events.map(event => event.at + Math.max(event.took, 0)));
  const width = Math.max(240, (chart.clientWidth - LEFT - 52) * zoom);
  const x = at => LEFT + at / end * width;
  const rows = stacked(events, data.lanes);
  const heights = data.lanes.map((_, lane) => 1 + Math.max(0, ...events.map((event, i) => event.lane === lane ? rows[i] : 0)));
  const tops = heights.map((_, lane) => TOP + ROW * heights.slice(0, lane).reduce((a, b) => a + b, 0) + 4 * lane);
  const height = tops.at(-1) + ROW * heights.at(-1) + 8;
  chart.replaceChildren();
  const svg = make("svg", { width: LEFT + width + 48, height, role: "group", "aria-label": "events over time" }, chart);
  // Room for a label at each line.
  const ticks = Math.max(1, Math.floor(width / 80));
  for (let i = 0; i <= ticks; i++) {
    const at = end * i / ticks;
    make("text", { x: x(at) - 10, y: 13, class: "quiet" }, svg).textContent = `${Math.round(at)} ms`;
    make("line", { x1: x(at), x2: x(at), y1: TOP - 4, y2: height, stroke: "var(--line)" }, svg);
  }
  data.lanes.forEach((lane, i) => make("text", { x: 4, y: tops[i] + 13 }, svg).textContent = lane);
  const middle = i => tops[events[i].lane] + ROW * rows[i] + ROW / 2;
  const links = make("g", {}, svg);
  const tell = i => {
    const event = events[i];
    detail.textContent = `${event.at.toFixed(1)} ms${event.took > 0 ? `, ${event.took.toFixed(1)} ms long` : ""}: ${event.text}`;
    links.replaceChildren();
    const pairs = events.flatMap((other, j) => other.cause === i ? [[i, j]] : []);
    if (event.cause >= 0) pairs.push([event.cause, i]);
    for (const [from, to] of pairs) {
      make("path", { class: "cause", d: `M${x(events[to].at)},${middle(from)} L${x(events[to].at)},${middle(to)}` }, links);
    }
  };
  events.forEach((event, i) => {
    const y = tops[event.lane] + ROW * rows[i] + 3;
    const attributes = { class: `event c-${event.colour}`, tabindex: 0, role: "img", "aria-label": event.text };
    const shape = event.took > 0
      ? make("rect", { ...attributes, x: x(event.at), y, width: Math.max(3, event.took / end * width), height: ROW - 6, rx: 2 }, svg)
      : make("circle", { ...attributes, cx: x(event.at), cy: y + ROW / 2 - 3, r: 4 }, svg);
    for (const what of ["mouseenter", "focus", "click"]) shape.addEventListener(what, () => tell(i));
  });
};

for (const box of all("details.timeline")) {
  let zoom = 1, data = null;
  const again = () => draw(box, data, zoom);
  box.addEventListener("toggle", () => {
    if (!box.open || data) return;
    data = JSON.parse(box.querySelector("script").textContent);
    again();
  });
  for (const button of all("button[data-zoom]", box)) {
    button.addEventListener("click", () => {
      zoom = button.dataset.zoom === "fit" ? 1 : Math.min(64, Math.max(1, zoom * Number(button.dataset.zoom)));
      again();
    });
  }
}
