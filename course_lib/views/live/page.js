// Puts the SVG of the image before this script into the page, where it takes the theme's colours and
// boxes say what they are. What else a picture needs comes behind this, in the same function.
// Nothing is fetched.
const image = document.currentScript.previousElementSibling;
const source = decodeURIComponent(image.src.slice(image.src.indexOf(",") + 1));
const salt = "-" + Math.random().toString(36).slice(2, 8);
const svg = new DOMParser().parseFromString(
  source.replace(/(url\(#|\sid=['"]|href=['"]#)([\w-]+)/g, "$1$2" + salt), "image/svg+xml").documentElement;
const room = document.createElement("div");
room.className = "course-picture";
room.style.maxWidth = image.style.maxWidth;
svg.classList.add("live");
svg.setAttribute("aria-label", image.alt);
const stage = document.createElement("div");
stage.style.position = "relative";
stage.append(svg);
room.append(stage);
image.replaceWith(room);
const area = room.closest(".jp-OutputArea");
// In a notebook that was opened again the controls have no kernel behind them.
if (!document.getElementById("course-style")) {
  const gone = ".jp-OutputArea:has(.course-picture) .jupyter-widgets:not(:has(*))";
  const style = document.createElement("style");
  style.id = "course-style";
  const thumb = "box-sizing:border-box;width:14px;height:14px;border-radius:7px;background:#2b8ccc;" +
    "border:2px solid var(--jp-layout-color0,Canvas);cursor:pointer";
  const track = "height:2px;background:var(--rail,var(--jp-border-color1,#8888));border-radius:1px";
  style.textContent = `${gone}{font-size:0!important}${gone}::after{content:"Run this cell to get its controls.";
    font-size:var(--jp-ui-font-size1,13px);color:var(--jp-content-font-color2,#666)}
    .course-player{display:flex;flex-wrap:wrap;gap:6px;align-items:center;padding:4px}
    .course-player,.course-detail{font-size:12px;color:var(--jp-content-font-color1,inherit)}
    .course-picture button{min-width:28px;min-height:24px;padding:0 6px;border:1px solid var(--jp-border-color1,#8888);
    border-radius:4px;background:transparent;color:inherit;font:inherit;cursor:pointer}
    .course-picture button:hover{background:#8883}
    .course-moment{appearance:none;-webkit-appearance:none;background:transparent;margin:0;height:16px;cursor:pointer}
    .course-moment::-webkit-slider-runnable-track{${track}}
    .course-moment::-moz-range-track{${track}}
    .course-moment::-webkit-slider-thumb{-webkit-appearance:none;margin-top:-6px;${thumb}}
    .course-moment::-moz-range-thumb{${thumb}}`;
  document.head.append(style);
}
// Sliders of ipywidgets have no names and count their values: tell both to screen readers.
for (const slider of area ? area.querySelectorAll(".widget-inline-hbox") : []) {
  const [name, handle, value] = [".widget-label", "[role=slider]", ".widget-readout"].map(
    (part) => slider.querySelector(part));
  if (name && handle) handle.setAttribute("aria-label", name.textContent);
  if (value && handle) handle.setAttribute("aria-valuetext", value.textContent);
}
