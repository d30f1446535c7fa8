// How the search ranks and shows what it finds; part of language_data.js, which is read after Sphinx's searchtools.js.
// A page of the index is a section, "PAGE#ID"; in place of a file name it has its place in the book (book_search.py).
var Scorer = {
  objNameMatch: 50, objPartialMatch: 2, objPrio: {}, objPrioDefault: 0, // a full name comes before text, after titles
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
  score: (found) => {
    const [page, id] = found[0].split("#"), { docnames, titles } = Search._index;
    if (id) {
      found[0] = page;
      found[1] = `${titles[docnames.indexOf(page)]} › ${found[1]}`;
      found[2] ||= `#${id}`;
    }
    return found[4] + 20 * page.startsWith("notebooks/") - 20 * page.startsWith("book/api") - found[5] / 1e4;
  },
};

// The text around a hit: formulas in words, and nothing of what is folded or drawn.
const inWords = (tex) => tex.replace(/\\[td]?frac(?:(\d)(\d)|\{([^{}]*)\}\{([^{}]*)\})/g, "$1$3/$2$4")
  .replace(/\\(?:math\w+|text|left|right|[^A-Za-z])/g, "").replace(/[\\{}]/g, "");
Search.htmlToText = (html, anchor) => {
  const page = new DOMParser().parseFromString(html, "text/html");
  const place = page.getElementById(anchor.slice(1)) ?? page.querySelector("article section");
  const unsaid = "section, h1, h2, h3, h4, svg, style, script, div.math, .moving, details.above-input";
  place.querySelectorAll(unsaid).forEach((part) => part.remove());
  place.querySelectorAll("span.math").forEach((part) => { part.textContent = inWords(part.textContent); });
  return place.textContent.replace(/\s+/g, " ");
};
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false; // no page may read another there
