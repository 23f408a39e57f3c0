// A player: `show` draws a moment between `first` and `last` and says it; it stops at `marks`.
const WIDE = svg.getAttribute("width");
const bar = document.createElement("div");
bar.className = "course-player";
const button = (sign, name, act) => {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = sign;
  made.title = name;
  made.setAttribute("aria-label", name);
  made.onclick = act;
  bar.append(made);
  return made;
};
const player = (first, last, marks, seconds, step, show) => {
  let playing = 0, now = last;
  const go = (moment) => {
    now = moment;
    clock.textContent = show(moment);
    scrub.value = moment;
    scrub.setAttribute("aria-valuetext", clock.textContent);
  };
  const stop = () => {
    cancelAnimationFrame(playing);
    playing = 0;
    start.textContent = "▶";
    start.setAttribute("aria-label", "play");
  };
  const start = button("▶", "play", () => {
    if (playing) return stop();
    start.textContent = "❚❚";
    start.setAttribute("aria-label", "pause");
    let before = performance.now();
    let moment = now >= last ? first : now;
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
  button("◂", "one step back", () => { stop(); go(marks.findLast((mark) => mark < now - 0.02) ?? first); });
  button("▸", "one step on", () => { stop(); go(marks.find((mark) => mark > now + 0.02) ?? last); });
  const scrub = document.createElement("input");
  Object.assign(scrub, { type: "range", className: "course-moment", min: first, max: last, step: step || "any" });
  scrub.style.cssText = "flex:1;min-width:120px";
  scrub.setAttribute("aria-label", "moment");
  scrub.oninput = () => { stop(); go(+scrub.value); };
  const clock = document.createElement("span");
  clock.style.cssText = "min-width:9em;font-variant-numeric:tabular-nums";
  bar.append(scrub, clock);
  room.append(bar);
  return { go, scrub };
};
