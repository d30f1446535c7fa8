// What every page does with a script: what is too wide scrolls in its own box, one switch opens all folded code, a link
// finds what it leads to open and what was searched for marked, and the scorecard has filters.
{
  // In a folder no page may read another. Elsewhere what search quotes of a page is its text, without TeX and contents.
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
  const store = (() => { try { return localStorage; } catch { return {}; } })(); // refused to a folder by some
  const article = document.querySelector("article") ?? document.body;
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
  new ResizeObserver(look).observe(article);

  const goal = (hash = location.hash) => document.getElementById(decodeURIComponent(hash.slice(1)));
  const land = () => { // at a claim its story opens, at the cell that measures it the code
    const found = goal();
    const story = document.querySelector(".told:popover-open");
    story?.hidePopover();
    if (!found) return;
    const measured = found.matches("[id^=measured-]") || story?.matches("span"); // from a claim, perhaps to a figure
    const fold = found.closest("details");
    if (fold) fold.open = true;
    else if (!measured && !found.matches("button.claim")) return;
    if (measured) found.closest("div.cell")?.querySelector("details.above-input")?.setAttribute("open", "");
    found.closest("div.cell, :not(span)").scrollIntoView({ block: "center" });
    found.popoverTargetElement?.togglePopover({ force: true, source: found });
  };
  // A mouse need not press: a claim shows its story, a citation what it cites, and a link to a figure, an equation or a
  // theorem of this page what it leads to.
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
  // Sphinx marks what was searched for only where the theme has not loaded the search itself, which it does everywhere.
  const mark = () => {
    if (document.getElementById("search-results")) return;
    SphinxHighlight.highlightSearchWords();
    if (!goal()) setTimeout(() => article.querySelector(".highlighted")?.scrollIntoView({ block: "center" }), 50);
  };
  addEventListener("hashchange", land);
  const { dataset } = document.documentElement; // paper is light
  let theme;
  addEventListener("beforeprint", () => { theme = dataset.theme; dataset.theme = "light"; });
  addEventListener("afterprint", () => { dataset.theme = theme; });
  addEventListener("load", async () => {
    await window.MathJax?.startup?.promise; // before that a mark would break a formula, and places still move
    look();
    mark();
    land();
    const play = document.querySelector("#play .moving-controls > button");
    if (play) { // on the first page the game plays once when it is seen
      new IntersectionObserver(([seen], watch) => {
        if (!seen.isIntersecting) return;
        watch.disconnect();
        play.click();
      }, { threshold: 1 }).observe(play);
    }
  });

  const folds = document.querySelectorAll("details.above-input");
  if (folds.length) {
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

  const filters = document.querySelector(".filters");
  if (filters) {
    const rows = [...document.querySelectorAll("tr[data-verdict]")], choices = [...filters.querySelectorAll("select")];
    const choose = () => {
      rows.forEach((row) => {
        row.hidden = choices.some(({ name, value }) => value && !row.dataset[name].split(" ").includes(value));
      });
      const left = rows.filter((row) => !row.hidden);
      document.querySelectorAll("tr[data-of]").forEach((head) => {
        head.hidden = !left.some((row) => row.dataset.chapter === head.dataset.of);
      });
      filters.querySelector("output").textContent = `${left.length} of ${rows.length} claims`;
    };
    filters.addEventListener("input", choose);
    filters.hidden = false;
    choose();
  }
}
