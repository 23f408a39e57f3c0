// What a page shows badly, in words: sentences about words that overlap, are cut off, or cannot be
// told from what is behind them, about blurred images, and about whatever is wider than its room.
() => {
  const found = [];
  const cells = [...document.querySelectorAll(".jp-Notebook .jp-Cell, body > main > .jp-Cell, .jp-Cell")];
  const say = (where, what) => {
    const cell = cells.indexOf(where.closest(".jp-Cell"));
    found.push(`cell ${cell}: ${what}`);
  };
  const quoted = (text) => `"${text.textContent.slice(0, 50)}"`;
  const seen = (element) => element.getClientRects().length > 0 && element.checkVisibility({ opacityProperty: true });
  const rgb = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.04 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const contrast = (one, other) => {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  // What is behind a page that paints nothing: white, or dark by the reader's theme.
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.backgroundColor = "Canvas";
  const canvas = rgb(getComputedStyle(probe).backgroundColor);
  probe.remove();
  const page = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgb(getComputedStyle(at).backgroundColor);
      if (color.length >= 3 && (color.length === 3 || color[3] > 0.5)) return color;
    }
    return canvas;
  };
  // A line of letters is lower than the box that the browser gives it.
  const inked = (text) => {
    const { left, right, top, bottom } = text.getBoundingClientRect();
    const less = (bottom - top) * 0.2;
    return { left, right, top: top + less, bottom: bottom - less };
  };
  const common = (a, b) => [Math.min(a.right, b.right) - Math.max(a.left, b.left), Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)];

  for (const svg of document.querySelectorAll("svg.cv")) {
    if (!seen(svg)) continue;
    const frame = svg.getBoundingClientRect();
    const things = [...svg.querySelectorAll("text, rect, polygon, circle")].filter((one) => !one.closest("defs, clipPath, metadata") && seen(one));
    const texts = things.filter((one) => one.tagName === "text" && one.textContent.trim()).map((one) => ({ one, box: inked(one) }));
    const areas = things.filter((one) => one.tagName === "rect").map((one) => ({ one, box: one.getBoundingClientRect() }));
    const behind = page(svg);
    texts.forEach(({ one, box }, index) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        say(svg, `${quoted(one)} stands outside of its picture`);
      if (box.bottom - box.top < 5) say(svg, `${quoted(one)} is ${(box.bottom - box.top).toFixed(1)} pixels high`);
      for (const other of texts.slice(index + 1)) {
        const [wide, high] = common(box, other.box);
        if (wide > 1.5 && high > 1.5) say(svg, `${quoted(one)} and ${quoted(other.one)} overlap`);
      }
      let ground = behind, within = true;
      for (const area of areas) {
        const [wide, high] = common(box, area.box);
        if (wide <= 1 || high <= 1) continue;
        const style = getComputedStyle(area.one);
        if (!style.fill.startsWith("rgb")) continue;
        const fill = rgb(style.fill), strength = (fill[3] ?? 1) * style.fillOpacity;
        const later = one.compareDocumentPosition(area.one) & Node.DOCUMENT_POSITION_FOLLOWING;
        if (later && strength >= 0.5) say(svg, `${quoted(one)} is covered`);
        if (later) continue;
        // What is seen through shows what lies behind it too.
        if (wide > 0.5 * (box.right - box.left)) ground = ground.map((c, k) => c + strength * (fill[k] - c));
        if (strength >= 0.5) within = wide > box.right - box.left - 1.5;
      }
      if (!within) say(svg, `${quoted(one)} sticks out of its box`);
      const ratio = contrast(rgb(getComputedStyle(one).fill), ground);
      if (ratio < 3) say(svg, `${quoted(one)} has a contrast of ${ratio.toFixed(1)}`);
    });
  }
  for (const room of document.querySelectorAll(".jp-OutputArea-output, .jp-RenderedMarkdown, .jp-RenderedMarkdown pre, .cm-scroller, .highlight, .course-picture, .course-card, .course-player")) {
    if (seen(room) && room.scrollWidth > room.clientWidth + 1)
      say(room, `${room.className || room.tagName} is ${room.scrollWidth} pixels wide in a room of ${room.clientWidth}: "${room.textContent.trim().slice(0, 50)}"`);
  }
  // What is printed is broken in the middle of a word.
  const pen = document.createElement("canvas").getContext("2d");
  for (const printed of document.querySelectorAll(".jp-OutputArea-output pre")) {
    if (!seen(printed)) continue;
    pen.font = getComputedStyle(printed).font;
    for (const line of printed.textContent.split("\n"))
      if (pen.measureText(line).width > printed.clientWidth + 1) say(printed, `a line of ${line.length} letters is broken: "${line.trim().slice(0, 50)}"`);
  }
  for (const image of document.querySelectorAll(".jp-Cell img, .jp-MarkdownViewer img")) {
    const vector = /^data:image\/svg|\.svg($|\?)/.test(image.src);
    const needed = image.getBoundingClientRect().width * devicePixelRatio;
    if (!image.naturalWidth) say(image, `an image is empty: ${image.src.slice(0, 60)}`);
    else if (!vector && seen(image) && image.naturalWidth < needed - 1)
      say(image, `an image of ${image.naturalWidth} pixels is blurred over ${Math.round(needed)}: "${image.alt.slice(0, 50)}"`);
  }
  for (const wrong of document.querySelectorAll("mjx-merror, .MathJax_Error, merror")) say(wrong, `a formula: ${wrong.textContent.slice(0, 60)}`);
  return [...new Set(found)];
}
