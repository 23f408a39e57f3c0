// Frames that take the place of the still picture, one at a time. A picture that replaces another
// of as many frames, as when a control was moved, begins where that one was.
const frames = [...svg.querySelectorAll(".frame")];
const count = frames.length;
svg.querySelector(".still").style.display = "none";
const before = area?.courseFrame?.count === count ? area.courseFrame.shown : 0;
const { go } = player(0, count - 1, frames.map((_, k) => k), 1.2 * count, 1, (k) => {
  frames.forEach((frame, place) => { frame.style.display = place === k ? "" : "none"; });
  if (area) area.courseFrame = { count, shown: k };
  return frames[k].dataset.name;
});
go(before);
