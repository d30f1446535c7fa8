// What every page does with a script: what is too wide scrolls in its own box, and one switch opens all folded code.
{
  // Such a box (custom.css) can be reached by Tab, so that the arrow keys move it; one that fits is no stop on the way.
  // The theme does the same for code and its own tables.
  const boxes = ".table-wrapper, mjx-container, .cell_output, figure";
  const look = () => {
    document.querySelectorAll("mjx-container:not([display])").forEach((formula) => {
      formula.classList.toggle("too-wide", formula.firstElementChild?.offsetWidth > formula.parentElement.clientWidth);
    });
    document.querySelectorAll(boxes).forEach((box) => {
      const scrolls = box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX === "auto";
      if (scrolls) box.tabIndex = 0; else box.removeAttribute("tabindex");
    });
  };
  // The article changes its size when the window does, when formulas are set, and when something unfolds.
  new ResizeObserver(look).observe(document.querySelector("article") ?? document.body);
  addEventListener("load", () => window.MathJax?.startup?.promise?.then(look));

  const folds = document.querySelectorAll("details.above-input");
  if (folds.length) {
    const store = (() => { try { return localStorage; } catch { return {}; } })(); // refused to a folder by some
    const button = document.createElement("button");
    const show = (all) => {
      folds.forEach((fold) => { fold.open = all; });
      button.textContent = all ? "Hide code" : "Show all code";
      button.setAttribute("aria-pressed", all);
    };
    button.className = "show-code";
    button.addEventListener("click", () => {
      store.code = store.code === "all" ? "" : "all";
      show(store.code === "all");
    });
    show(store.code === "all");
    document.querySelector("article h1").before(button);
  }
}
