// Puts the SVG of the image before this script into the page. There it takes the theme's colours,
// boxes say what they are, and what has a "play" group or frames gets a player. Nothing is fetched.
(() => {
  const image = document.currentScript.previousElementSibling;
  const source = decodeURIComponent(image.src.slice(image.src.indexOf(",") + 1));
  const salt = "-" + Math.random().toString(36).slice(2, 8);
  const svg = new DOMParser().parseFromString(
    source.replace(/(url\(#|\sid=['"]|href=['"]#)([\w-]+)/g, "$1$2" + salt), "image/svg+xml").documentElement;
  const room = document.createElement("div");
  room.className = "course-picture";
  svg.classList.add("live");
  svg.setAttribute("aria-label", image.alt);
  room.append(svg);
  image.replaceWith(room);
  const area = room.closest(".jp-OutputArea");
  // In a notebook that was opened again the controls have no kernel behind them.
  if (!document.getElementById("course-style")) {
    const gone = ".jp-OutputArea:has(.course-picture) .jupyter-widgets:not(:has(*))";
    const style = document.createElement("style");
    style.id = "course-style";
    style.textContent = `${gone}{font-size:0!important}${gone}::after{content:"Run this cell to get its controls.";
      font-size:var(--jp-ui-font-size1,13px);color:var(--jp-content-font-color2,#666)}`;
    document.head.append(style);
  }
  // Sliders of ipywidgets have no names and count their values: tell both to screen readers.
  for (const slider of area ? area.querySelectorAll(".widget-inline-hbox") : []) {
    const [name, handle, value] = [".widget-label", "[role=slider]", ".widget-readout"].map(
      (part) => slider.querySelector(part));
    if (name && handle) handle.setAttribute("aria-label", name.textContent);
    if (value && handle) handle.setAttribute("aria-valuetext", value.textContent);
  }
  // A player: `show` draws a moment between `first` and `last` and says it; it stops at `marks`.
  const player = (first, last, marks, seconds, step, show) => {
    const bar = document.createElement("div");
    bar.className = "course-player";
    bar.style.cssText = `display:flex;gap:6px;align-items:center;max-width:${svg.getAttribute("width")}px;padding:2px 4px;font-size:12px`;
    let playing = 0;
    const now = () => +scrub.value;
    const go = (moment) => {
      scrub.value = moment;
      clock.textContent = show(moment);
      scrub.setAttribute("aria-valuetext", clock.textContent);
    };
    const stop = () => {
      cancelAnimationFrame(playing);
      playing = 0;
      start.textContent = "▶";
      start.setAttribute("aria-label", "play");
    };
    const button = (sign, name, act) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = sign;
      made.title = name;
      made.setAttribute("aria-label", name);
      made.style.cssText = "min-width:30px;cursor:pointer";
      made.onclick = act;
      bar.append(made);
      return made;
    };
    const start = button("▶", "play", () => {
      if (playing) return stop();
      start.textContent = "❚❚";
      start.setAttribute("aria-label", "pause");
      let before = performance.now();
      let moment = now() >= last ? first : now();
      const tick = (time) => {
        if (!room.isConnected) return;
        moment += ((last - first) * (time - before)) / (1000 * seconds);
        before = time;
        go(Math.min(step ? Math.floor(moment) : moment, last));
        if (moment < last) playing = requestAnimationFrame(tick);
        else stop();
      };
      playing = requestAnimationFrame(tick);
    });
    button("◂", "one step back", () => { stop(); go(marks.findLast((mark) => mark < now() - 0.02) ?? first); });
    button("▸", "one step on", () => { stop(); go(marks.find((mark) => mark > now() + 0.02) ?? last); });
    const scrub = document.createElement("input");
    Object.assign(scrub, { type: "range", min: first, max: last, step: step || "any" });
    scrub.style.cssText = "flex:1;min-width:120px;accent-color:#0072b2";
    scrub.setAttribute("aria-label", "moment");
    scrub.oninput = () => { stop(); go(now()); };
    const clock = document.createElement("span");
    clock.style.cssText = "min-width:11em;text-align:right;color:var(--jp-content-font-color1,inherit);font-variant-numeric:tabular-nums";
    bar.append(scrub, clock);
    room.append(bar);
    return go;
  };
  const frames = [...svg.querySelectorAll(".frame")];
  if (frames.length) {
    svg.querySelector(".still").style.display = "none";
    const go = player(0, frames.length - 1, frames.map((_, k) => k), 1.2 * frames.length, 1, (k) => {
      frames.forEach((frame, place) => { frame.style.display = place === k ? "" : "none"; });
      return frames[k].dataset.name;
    });
    return go(0);
  }
  const play = svg.querySelector(".play");
  if (!play) return;
  const [left, right, top, bottom] = ["left", "right", "top", "bottom"].map((side) => +play.dataset[side]);
  const number = (part, name) => +part.getAttribute(name);
  const parts = [...svg.querySelectorAll("g.b[data-key]:not([data-key=key])")].map((part) => {
    const box = part.querySelector("rect");
    return { part, from: number(box, "x"), to: number(box, "x") + number(box, "width") };
  });
  const draw = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    play.append(made);
    return made;
  };
  const hand = draw("line", { y1: top, y2: bottom, style: "stroke:var(--ink)", "stroke-width": 1.5 });
  const messages = [...svg.querySelectorAll(".m")].map((line) => ({
    line, x1: number(line, "x1"), x2: number(line, "x2"), y1: number(line, "y1"), y2: number(line, "y2"),
    dot: draw("circle", { r: 4.5, fill: line.getAttribute("stroke"), style: "stroke:var(--ink)", "stroke-width": 0.7 }),
  }));
  const [, end, unit] = play.dataset.end.match(/^([\d.]+) ?(.*)$/);
  const marks = [left, ...new Set(parts.map(({ from }) => from + 0.01)), right].sort((a, b) => a - b);
  const go = player(left, right, marks, 8, 0, (x) => {
    const whole = x >= right;
    for (const { part, from, to } of parts) {
      part.style.opacity = whole || from < x ? 1 : 0.13;
      part.style.filter = !whole && from < x && x < to ? "brightness(1.2)" : "";
    }
    for (const { line, dot, x1, x2, y1, y2 } of messages) {
      const share = (x - x1) / Math.max(x2 - x1, 1e-6);
      line.style.opacity = whole ? "" : share < 0 ? 0.08 : 0.55;
      dot.style.display = !whole && share > 0 && share < 1 ? "" : "none";
      dot.setAttribute("cx", x);
      dot.setAttribute("cy", y1 + share * (y2 - y1));
    }
    hand.style.display = whole ? "none" : "";
    hand.setAttribute("x1", x);
    hand.setAttribute("x2", x);
    const time = ((x - left) / (right - left)) * end;
    return `${whole ? end : time.toFixed(end < 100 ? 1 : 0)} of ${end} ${unit}`;
  });
  go(right);
})();
