/* Pick the tokens to hide: log p(x_j | x_R) of each hidden token, Eq. 1's sum, and where the mask lies among all masks.
 * data: words [D]; answers [2^D], for the mask whose bit j says that token j is hidden: log p of each hidden token in
 * order; guesses [2^D], likewise the most probable word, a place in vocabulary; joint [2^D], log p(x_M | x_R); hidden:
 * the tokens hidden at first. */
(() => {
  "use strict";
  const { number, sum } = Moving;

  const bits = (code, D) => [...Array(D).keys()].filter((j) => code >> j & 1);

  /* S(1), ..., S(D): the mean over all masks of a size of a mask's own mean. */
  const curve = (answers, D) => {
    const [total, count] = [Array(D).fill(0), Array(D).fill(0)];
    answers.forEach((terms) => {
      if (!terms.length) return;
      total[terms.length - 1] += sum(terms) / terms.length;
      count[terms.length - 1] += 1;
    });
    return total.map((value, k) => value / count[k]);
  };

  const build = (figure, data) => {
    const D = data.words.length;
    const S = curve(data.answers, D);
    const lml = data.joint[2 ** D - 1];
    const lowest = Math.min(...data.answers.flatMap((terms) => (terms.length ? sum(terms) / terms.length : 0))) * 1.05;
    let code = sum(data.hidden.map((j) => 2 ** j));

    const words = Moving.add(figure.controls, "div",
      { class: "moving-words", role: "group", "aria-label": "Words: press one to hide it or to show it" });
    const cells = data.words.map((word, j) => {
      const cell = Moving.add(words, "div");
      const button = Moving.add(cell, "button", { type: "button" }, word);
      button.addEventListener("click", () => { code ^= 1 << j; figure.draw(); });
      return { button, note: Moving.add(cell, "div") };
    });
    figure.button("Hide all", () => { code = 2 ** D - 1; figure.draw(); });
    figure.button("Show all", () => { code = 0; figure.draw(); });
    figure.key([["dot grey", "every mask"], ["dot orange", "your mask"], ["blue line", "S(x; m), their mean"],
      ["blue area", "its area, the LML"]]);

    return () => {
      const hidden = bits(code, D);
      const terms = data.answers[code];
      cells.forEach(({ button, note }, j) => {
        const place = hidden.indexOf(j);
        button.setAttribute("aria-pressed", place >= 0);
        note.replaceChildren();
        Moving.add(note, "div", {}, place < 0 ? "visible" : number(terms[place]));
        Moving.add(note, "div", {}, place < 0 ? "\u00a0" : `${data.vocabulary[data.guesses[code][place]]}?`);
      });
      const size = hidden.length;
      let say = ["Nothing is hidden: press a word."];
      if (size) {
        const total = sum(terms);
        const [each, mean, joint] = [total / size, S[size - 1], data.joint[code]].map((value) => number(value, 3));
        say = [`${size} hidden, summed as in Eq. 1: ${number(total, 3)} nats; the hidden words jointly: ${joint}`,
          `A hidden word: ${each} here, S(x; ${size}) = ${mean} over all masks of this size`];
      }
      say.push(`Area under the curve: ${number(sum(S), 3)}; log p(x): ${number(lml, 3)}`);
      const what = "The mean log-probability of a hidden word for every mask, against the number of hidden words.";
      const [svg, width] = figure.sheet(260, `${what} ${say.join(". ")}`);
      const panel = new Moving.Panel(svg, { left: 0, top: 0, width, height: 260 },
        { x: [0, D + 0.5], y: [lowest, 0.08], xlabel: "words hidden, m", ylabel: "nats per hidden word",
          xticks: S.map((_, k) => k + 1), left: 42 });
      S.forEach((value, k) => panel.box(k + 0.5, k + 1.5, value, 0, "blue faint"));
      data.answers.forEach((own) => { if (own.length) panel.dot(own.length, sum(own) / own.length, "grey half", 3); });
      panel.line(S.map((value, k) => [k + 1, value]), "blue");
      if (size) panel.dot(size, sum(terms) / size, "orange", 6.5);
      figure.say(say);
    };
  };

  Moving.kind("mask", { build, curve });
})();
