// A hand that goes over a timeline, a window of it that is enlarged, and what the chosen box is.
// All that stands at a time has its place in the whole picture (x) and one in the window (at(x)).
const play = svg.querySelector(".play");
const [left, right, top, bottom] = ["left", "right", "top", "bottom"].map((side) => +play.dataset[side]);
const number = (part, name) => +part.getAttribute(name);
const sized = (part, values) => { for (const name in values) part.setAttribute(name, values[name]); };
const draw = (name, attributes, into = play) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  sized(made, attributes);
  into.append(made);
  return made;
};
let low = left, high = right, moment = right, chosen = null, dragged = null;
const at = (x) => left + ((x - low) / (high - low)) * (right - left);
const parts = [...svg.querySelectorAll("g.b[data-key]:not([data-key=key])")].map((part) => {
  const rects = [...part.querySelectorAll("rect")];
  const [from, wide, y] = ["x", "width", "y"].map((name) => number(rects[0], name));
  return { part, rects, from, to: from + wide, y, tall: number(rects[0], "height"), text: part.querySelector("text") };
}).filter(({ from, to }) => to > left && from < right + 1);
const ends = [...svg.querySelectorAll("polyline[data-key=end]")].map((line) => ({ line, x: parseFloat(line.getAttribute("points")) }));
const clip = draw("clipPath", { id: "window" + salt });
draw("rect", { x: left, y: top, width: right - left, height: bottom - top + 8 }, clip);
const clipped = `url(#window${salt})`;
const hand = draw("line", { y1: top, y2: bottom, style: "stroke:var(--ink)", "stroke-width": 1.5 });
const sky = draw("g", { "clip-path": clipped });
const messages = [...svg.querySelectorAll(".m")].map((line) => {
  line.setAttribute("clip-path", clipped);
  const [x1, x2, y1, y2] = ["x1", "x2", "y1", "y2"].map((name) => number(line, name));
  const flying = draw("g", {}, sky);
  const paint = { fill: line.getAttribute("stroke"), style: "stroke:var(--ink)", "stroke-width": 0.7 };
  const word = line.dataset.word;
  const half = word ? 6 + 3.4 * word.length : 0;
  if (word) {
    draw("rect", { x: -half, y: -10, width: 2 * half, height: 20, rx: 3, style: "fill:var(--jp-layout-color0,#fff)" }, flying);
    draw("rect", { x: -half, y: -10, width: 2 * half, height: 20, rx: 3, ...paint, "fill-opacity": 0.35 }, flying);
    draw("text", { y: 4, "font-size": 11, "text-anchor": "middle", "font-weight": "bold" }, flying).textContent = word;
  } else draw("circle", { r: 4.5, ...paint }, flying);
  return { line, x1, x2, y1, y2, flying };
});
const [, end, unit] = play.dataset.end.match(/^([\d.]+) ?(.*)$/);
const marks = [left, ...new Set(parts.map(({ from }) => from + 0.01)), right].sort((a, b) => a - b);

const drawMoment = () => {
  const x = moment, whole = x >= right;
  for (const { part, from, to } of parts) {
    part.style.opacity = whole || from < x ? 1 : 0.13;
    part.style.filter = !whole && from < x && x < to ? "brightness(1.2)" : "";
  }
  for (const { line, flying, x1, x2, y1, y2 } of messages) {
    const share = (x - x1) / Math.max(x2 - x1, 1e-6);
    line.style.opacity = whole ? "" : share < 0 ? 0.08 : 1;
    flying.style.display = !whole && share > 0 && share < 1 ? "" : "none";
    flying.setAttribute("transform", `translate(${at(x)},${y1 + share * (y2 - y1)})`);
  }
  hand.style.display = whole || x < low || x > high ? "none" : "";
  sized(hand, { x1: at(x), x2: at(x) });
};
// What plays stays in the window.
const showMoment = (x) => {
  moment = x;
  if (x < right && (x < low || x > high)) move(x - (high - low) / 2);
  else drawMoment();
  const time = ((x - left) / (right - left)) * end;
  return `${x >= right ? end : time.toFixed(end < 100 ? 1 : 0)} of ${end} ${unit}`;
};

// The scale of the window: as many round numbers as there is room for.
const scale = svg.querySelector(".marks");
const ticks = draw("g", {}, svg);
const drawScale = () => {
  const whole = low === left && high === right;
  scale.style.display = whole ? "" : "none";
  ticks.replaceChildren();
  if (whole) return;
  const shown = ((high - low) / (right - left)) * end;
  const ten = 10 ** Math.floor(Math.log10(shown / 6));
  const step = [1, 2, 5, 10].find((times) => times * ten * 6 >= shown) * ten;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  for (let k = Math.ceil((((low - left) / (right - left)) * end) / step); ; k += 1) {
    const x = at(left + ((k * step) / end) * (right - left));
    if (x > right + 1) break;
    draw("line", { x1: x, x2: x, y1: bottom, y2: bottom + 4, style: "stroke:var(--soft)" }, ticks);
    draw("text", { x, y: bottom + 17, "font-size": 11, "text-anchor": "middle" }, ticks).textContent =
      `${(k * step).toFixed(digits)}${/^(unit|round)/.test(unit) ? "" : ` ${unit}`}`;
  }
};

const place = () => {
  for (const each of parts) {
    const from = Math.max(left, at(each.from)), to = Math.min(right, at(each.to));
    const wide = to - from;
    each.part.style.display = wide > 0 ? "" : "none";
    if (wide <= 0) continue;
    for (const rect of each.rects) sized(rect, { x: from, width: wide });
    if (!each.text && each.part.dataset.word) {
      const style = `fill:${each.part.dataset.ink || "#000"}`;
      each.text = draw("text", { y: each.y + each.tall / 2 + 4, "font-size": 11, "text-anchor": "middle", style }, each.part);
      each.text.textContent = each.part.dataset.word;
    }
    if (!each.text) continue;
    each.text.setAttribute("x", (from + to) / 2);
    const kept = !each.part.dataset.word && low === left && high === right;
    each.text.style.display = kept || wide > 3 + 7 * each.text.textContent.length ? "" : "none";
  }
  for (const { line, x1, x2 } of messages) sized(line, { x1: at(x1), x2: at(x2) });
  for (const { line, x } of ends) {
    line.setAttribute("transform", `translate(${at(x) - x},0)`);
    line.style.display = at(x) > right + 1 ? "none" : "";
  }
  sized(scrub, { min: low, max: high });
  scrub.value = moment;
  drawScale();
  drawMoment();
  svg.style.touchAction = low === left && high === right ? "" : "pan-y";
  svg.style.cursor = low === left && high === right ? "" : "grab";
};
// What a control redraws keeps the window, as long as its times mean the same: a picture of another
// length begins with the whole of it, since a window of the old one may show nothing that happens.
const axis = [play.dataset.end, left, right].join();
const move = (to) => {
  const wide = high - low;
  low = Math.min(Math.max(to, left), right - wide);
  high = low + wide;
  if (right - high < 1e-6) high = right;
  if (area) area.courseWindow = { axis, low, high };
  place();
};
const zoom = (times, around) => {
  const wide = Math.min(right - left, Math.max((right - left) / 400, (high - low) / times));
  const share = (around - low) / (high - low);
  high = low + wide;
  move(around - share * wide);
};
const centre = () => {
  const about = chosen ? (chosen.from + chosen.to) / 2 : moment;
  return about > low && about < high ? about : (low + high) / 2;
};
const { go, scrub } = player(left, right, marks, 8, 0, showMoment);
// Its slider lies on the axis, where the thumb is the time.
const GRIP = 7; // pixels, half a thumb
const [across, wide] = [left, right - left].map((pixels) => `${(100 * pixels) / WIDE}%`);
scrub.style.cssText = `position:absolute;left:calc(${across} - ${GRIP}px);width:calc(${wide} + ${2 * GRIP}px);` +
  `top:calc(${(100 * bottom) / svg.getAttribute("height")}% - 8px);--rail:none`;
stage.append(scrub);
button("−", "zoom out", () => zoom(1 / 2, centre())).style.marginLeft = "auto";
button("+", "zoom in", () => zoom(2, centre()));
button("↔", "the whole run", () => zoom(1e-9, left));
go(right);
const kept = area?.courseWindow;
if (kept?.axis === axis) {
  ({ low, high } = kept);
  place();
}

// What the chosen box is, and the line of code behind it.
const detail = document.createElement("div");
detail.className = "course-detail";
detail.setAttribute("aria-live", "polite");
detail.style.padding = "0 4px 2px";
room.append(detail);
const say = (text, style = "", tag = "div") => {
  const made = document.createElement(tag);
  made.textContent = text;
  made.style.cssText = style;
  detail.append(made);
  return made;
};
const sources = [...svg.querySelectorAll("metadata")].map((one) => (
  { name: one.dataset.name, first: +one.dataset.first, lines: one.textContent.split("\n") }));
// The line in a cell of this page that has all of these lines, or in an exported page its cell;
// nothing where the page shows none.
const inCell = ({ lines }, index) => {
  for (const cell of document.querySelectorAll(".jp-CodeCell .cm-content")) {
    const there = [...cell.querySelectorAll(".cm-line")];
    const begin = there.findIndex((_, k) => lines.every((line, more) => there[k + more]?.textContent.trimEnd() === line.trimEnd()));
    if (begin >= 0) return there[begin + index];
  }
  return [...document.querySelectorAll(".jp-CodeCell .highlight pre")].find((cell) => cell.textContent.includes(lines.join("\n")));
};
const showSource = (which, line) => {
  const code = sources[which];
  const head = say(`line ${line} of ${code.name}  `, "margin-top:4px");
  const found = inCell(code, line - code.first);
  if (found) {
    const jump = document.createElement("button");
    jump.type = "button";
    jump.textContent = "show it in its cell";
    jump.onclick = () => {
      found.scrollIntoView({ block: "center" });
      found.animate([{ background: "#e69f00" }, { background: "#e69f00" }, { background: "transparent" }], 2500);
    };
    head.append(jump);
  }
  const block = say("", "margin:2px 0;max-height:13em;overflow:auto;padding:4px;line-height:1.35;" +
    "background:var(--jp-layout-color2,#f5f5f5);color:inherit;font-size:12px", "pre");
  block.tabIndex = 0;
  code.lines.forEach((text, k) => {
    const row = document.createElement("div");
    row.textContent = `${String(code.first + k).padStart(4)}  ${text}`;
    if (code.first + k === line) {
      row.style.cssText = "background:#e69f0055;box-shadow:inset 3px 0 #e69f00;font-weight:bold";
      row.setAttribute("aria-current", "true");
      requestAnimationFrame(() => { block.scrollTop = row.offsetTop - block.offsetTop - block.clientHeight / 2; });
    }
    block.append(row);
  });
};
const choose = (each) => {
  for (const rect of chosen ? chosen.rects : []) rect.style.stroke = rect.style.strokeWidth = "";
  chosen = each;
  detail.replaceChildren();
  if (!chosen) {
    const words = "Click a box, or press an arrow key, to see what it is. Zoom with + and −, move by dragging.";
    return say(words, "color:var(--jp-content-font-color2,#666);font-size:11px");
  }
  for (const rect of chosen.rects) Object.assign(rect.style, { stroke: "var(--ink)", strokeWidth: "2.5px" });
  if (chosen.to < low || chosen.from > high) move((chosen.from + chosen.to - high + low) / 2);
  const told = chosen.part.querySelector("title").textContent.split("\n");
  // What stands in the code below need not be said twice.
  told.filter((line) => !chosen.part.dataset.line || !line.startsWith("line ")).forEach((line, k) => say(line, k ? "" : "font-weight:bold"));
  if (chosen.part.dataset.line) showSource(...chosen.part.dataset.line.split(":").map(Number));
};
const beside = (across, down) => {
  if (!chosen) return parts.reduce((one, other) => (other.from < one.from ? other : one));
  const middle = (one) => (one.from + one.to) / 2;
  const sameRow = parts.filter((one) => Math.abs(one.y - chosen.y) < 0.5);
  if (across) return sameRow.sort((a, b) => a.from - b.from)[sameRow.indexOf(chosen) + across] ?? chosen;
  const rows = [...new Set(parts.map(({ y }) => y))].sort((a, b) => a - b);
  const y = rows[rows.indexOf(chosen.y) + down] ?? chosen.y;
  return parts.filter((one) => one.y === y).reduce((one, other) => (
    Math.abs(middle(other) - middle(chosen)) < Math.abs(middle(one) - middle(chosen)) ? other : one));
};
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
svg.tabIndex = 0;
svg.style.userSelect = "none";
svg.setAttribute("role", "application");
svg.setAttribute("aria-roledescription", "timeline");
svg.dataset.lmSuppressShortcuts = "true";
svg.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const arrow = ARROWS[event.key];
  if (arrow && event.shiftKey) move(low + (arrow[0] * (high - low)) / 4);
  else if (arrow) choose(beside(...arrow));
  else if (event.key === "+" || event.key === "=") zoom(2, centre());
  else if (event.key === "-") zoom(1 / 2, centre());
  else if (event.key === "0") zoom(1e-9, left);
  else if (event.key === "Escape") choose(null);
  else return;
  event.preventDefault();
  event.stopPropagation();
});
const here = (event) => {
  const frame = svg.getBoundingClientRect();
  return low + (((event.clientX - frame.left) * (WIDE / frame.width) - left) / (right - left)) * (high - low);
};
svg.addEventListener("wheel", (event) => {
  if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY / 300), Math.min(Math.max(here(event), low), high));
  else if (event.shiftKey && high - low < right - left) move(low + ((event.deltaX || event.deltaY) / 800) * (high - low));
  else return;
  event.preventDefault();
}, { passive: false });
svg.addEventListener("pointerdown", (event) => { dragged = { from: here(event), moved: false }; });
svg.addEventListener("pointermove", (event) => {
  if (!dragged || !event.buttons || Math.abs(here(event) - dragged.from) < (4 * (high - low)) / (right - left)) return;
  if (!dragged.moved) svg.setPointerCapture(event.pointerId);
  dragged.moved = true;
  move(low + dragged.from - here(event));
});
svg.addEventListener("pointerup", (event) => {
  if (dragged && !dragged.moved) choose(parts.find(({ part }) => part.contains(event.target)) ?? null);
  dragged = null;
});
choose(null);
