// What is too wide scrolls in its own box, folded code opens by section or all at once, and a link finds what
// it leads to open and what was searched for marked.
{
  // In a folder no page may read another. Elsewhere search quotes a page's text, without TeX and contents.
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  addEventListener("DOMContentLoaded", () => {
    const quoted = Search.htmlToText;
    Search.htmlToText = (html, anchor) => {
      const page = new DOMParser().parseFromString(html, "text/html");
      const others = ".math, .headerlink, .told, #jb-print-docs-body, .bd-header-article";
      page.querySelectorAll(others).forEach((part) => part.remove());
      return quoted(page.documentElement.outerHTML, anchor);
    };
  });
  const store = (() => { try { return localStorage; } catch { return {}; } })(); // a folder may have none
  const article = document.querySelector("article") ?? document.body;
  // Such a box (custom.css) fades where it goes on, and Tab reaches it, so that the arrow keys move it.
  const boxes = ".table-wrapper, .pst-scrollable-table-container, mjx-container, .cell_output, figure, .highlight pre";
  const scrolls = (box) => box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX === "auto";
  const fade = (box) => {
    box.classList.toggle("more", scrolls(box) && box.scrollWidth - box.clientWidth - box.scrollLeft > 2);
  };
  const look = () => {
    document.querySelectorAll("mjx-container:not([display])").forEach((formula) => {
      formula.classList.toggle("too-wide", formula.firstElementChild?.offsetWidth > formula.parentElement.clientWidth);
    });
    document.querySelectorAll(boxes).forEach((box) => {
      if (scrolls(box)) box.tabIndex = 0; else box.removeAttribute("tabindex");
      fade(box);
    });
  };
  document.addEventListener("scroll", ({ target }) => target.matches?.(boxes) && fade(target), true);
  // The article changes its size when the window does, when formulas are set, and when something unfolds.
  new ResizeObserver(look).observe(article);

  const goal = (hash = location.hash) => document.getElementById(decodeURIComponent(hash.slice(1)));
  const land = () => { // at a claim its story opens, at the cell that measures it the code
    const found = goal();
    const story = document.querySelector(".told:popover-open");
    story?.hidePopover();
    if (!found) return;
    const measured = found.matches("[id^=measured-]") || story?.matches("span"); // perhaps a figure
    const fold = found.closest("details");
    if (fold) fold.open = true;
    else if (!measured && !found.matches("button.claim")) return;
    if (measured) found.closest("div.cell")?.querySelector("details.above-input")?.setAttribute("open", "");
    found.closest("div.cell, :not(span)").scrollIntoView({ block: "center" });
    found.popoverTargetElement?.togglePopover({ force: true, source: found });
  };
  // A mouse need not press: a claim shows its story, a citation or a link within the page what it leads to.
  const card = Object.assign(document.createElement("div"), { className: "told", popover: "auto" });
  article.append(card);
  const fill = (link) => {
    card.replaceChildren(link.dataset.told ?? goal(link.hash).closest("figure, div.math, .proof").cloneNode(true));
    card.querySelectorAll("[id]").forEach((copy) => copy.removeAttribute("id"));
  };
  let timer;
  const soon = (story, force, source, wait) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (force && story === card) fill(source);
      story.togglePopover({ force, source });
    }, wait);
  };
  const links = [...article.querySelectorAll("a.reference.internal")].filter((link) => {
    if (!link.title) return link.matches('[href^="#"]') && goal(link.hash)?.closest("figure, div.math, .proof");
    link.dataset.told = link.title;
    link.removeAttribute("title");
    return true;
  });
  [...document.querySelectorAll("button.claim"), ...links].forEach((source) => {
    const story = source.popoverTargetElement ?? card;
    const mouse = (force, wait) => (event) => event.pointerType === "mouse" && soon(story, force, source, wait);
    source.addEventListener("pointerenter", mouse(true, 200));
    source.addEventListener("pointerleave", mouse(false, 300));
    if (story === card) {
      source.addEventListener("focus", () => source.matches(":focus-visible") && soon(card, true, source, 200));
      source.addEventListener("blur", () => soon(card, false, source, 0));
    } else story.addEventListener("pointerleave", mouse(false, 300));
    story.addEventListener("pointerenter", () => clearTimeout(timer));
  });
  card.addEventListener("pointerleave", () => soon(card, false, null, 300));
  // Sphinx marks what was searched for only where the theme has not loaded the search itself, as it has.
  const mark = () => {
    if (document.getElementById("search-results")) return;
    SphinxHighlight.highlightSearchWords();
    if (!goal()) setTimeout(() => article.querySelector(".highlighted")?.scrollIntoView({ block: "center" }), 50);
  };
  addEventListener("hashchange", land);
  const { dataset } = document.documentElement; // paper is light
  let theme, closed; // and shows the solutions
  addEventListener("beforeprint", () => {
    [theme, dataset.theme] = [dataset.theme, "light"];
    closed = article.querySelectorAll("details.sd-dropdown:not([open])");
    closed.forEach((fold) => { fold.open = true; });
  });
  addEventListener("afterprint", () => {
    dataset.theme = theme;
    closed.forEach((fold) => { fold.open = false; });
  });
  addEventListener("load", async () => {
    await window.MathJax?.startup?.promise; // before that a mark would break a formula, and places still move
    look();
    mark();
    land();
  });

  // One button opens all folded code, and one at the end of a section or of its part the code there.
  const folded = (name, folds, opened = () => {}) => {
    const button = Object.assign(document.createElement("button"), { className: "show-code" });
    const show = (open) => {
      folds.forEach((fold) => { fold.open = open; });
      button.textContent = `${open ? "Hide" : "Show"} ${name}`;
      button.setAttribute("aria-pressed", open);
    };
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-pressed") !== "true";
      show(open);
      opened(open);
    });
    return [button, show];
  };
  const folds = [...document.querySelectorAll("details.above-input")];
  if (folds.length) {
    const sections = new Set(folds.map((fold) => fold.closest("article section section")));
    sections.delete(null);
    const parts = [...sections].map((section) => {
      const own = folds.filter((fold) => fold.closest("section") === section);
      const [button, show] = folded("the code of this section", own, (open) => {
        if (open) own[0].scrollIntoView({ block: "center" });
      });
      const end = section.querySelector(":scope > section");
      if (end) end.before(button); else section.append(button);
      return show;
    });
    const [button, show] = folded("all code", folds, (open) => {
      store.code = open ? "all" : "";
      parts.forEach((part) => part(open));
    });
    document.querySelector("article h1").before(button);
    [show, ...parts].forEach((part) => part(store.code === "all"));
  }
}
