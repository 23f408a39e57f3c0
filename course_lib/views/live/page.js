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
