// What is too wide for the page scrolls in a box of its own (custom.css). Such a box can be reached by Tab, so that the
// arrow keys move it; one that fits is no stop on the way. The theme does the same for code and its own tables.
{
  const boxes = ".table-wrapper, mjx-container, .cell_output, figure, .text_html > [role=img]";
  const look = () => document.querySelectorAll(boxes).forEach((box) => {
    const scrolls = box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX === "auto";
    if (scrolls) box.tabIndex = 0; else box.removeAttribute("tabindex");
  });
  // The article changes its size when the window does, when formulas are set, and when something unfolds.
  new ResizeObserver(look).observe(document.querySelector("article") ?? document.body);
  addEventListener("load", () => window.MathJax?.startup?.promise?.then(look));
}
