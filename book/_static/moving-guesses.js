/* Slide the share of hidden words of one sentence: what two networks guess in their places.
 * data: unit ("word"); vocabulary [V]; names [2] of the networks, short; row [D], places in the vocabulary; steps, one
 * for each share: {hidden [m], guesses [2][m][T], the most probable words, chances [2][m][T], and scores [2][m],
 * log p(x_j | x_R) of the true words}, nats. As mptlml_book.report.guesses gives it. */
(() => {
  "use strict";
  const { number, sum } = Moving;

  /* By how much the second network's mean score of a hidden word exceeds the first's, nats. */
  const lead = ({ hidden, scores: [one, other] }) => (sum(other) - sum(one)) / hidden.length;

  const build = (figure, data) => {
    const { unit, vocabulary, names, row, steps } = data;
    const D = row.length;
    const percent = (k) => `${steps[k].hidden.length} of ${D} (${Math.round(100 * steps[k].hidden.length / D)}%)`;
    const at = figure.range(`Hidden ${unit}s`,
      { min: 0, max: steps.length - 1, value: Math.max(steps.length - 2, 0), text: percent });
    figure.play(at, 1200);
    const widest = Math.max(...row.map((word) => vocabulary[word].length), 2);

    return () => {
      const step = steps[+at.value];
      const { hidden, guesses, chances, scores } = step;
      const gain = lead(step);
      const say = `A hidden ${unit} scores ${number(Math.abs(gain))} nats ${gain < 0 ? "lower" : "higher"} here, on `
        + `average, under “${names[1]}” than under “${names[0]}”.`;
      const [line, margin] = [22, 8 + 6.4 * Math.max(...names.map((name) => name.length))];
      const across = Math.min(D, Math.floor((figure.width - margin) / (7.3 * widest + 8)));
      const block = 3 * line + 12;
      const [svg, width] = figure.sheet(Math.ceil(D / across) * block + 22, say);
      const cell = (width - margin) / across;
      const words = (x, y, text, style, anchor = "middle") =>
        Moving.add(svg, "text", { x, y, "text-anchor": anchor, class: style }, text);
      const points = row.map((word, j) => {
        const [left, top] = [margin + cell * (j % across), block * Math.floor(j / across)];
        const box = (at, style) => Moving.add(svg, "rect",
          { class: style, x: left + 1, y: top + at * line + 1, width: cell - 3, height: line - 2, rx: 3 });
        const k = hidden.indexOf(j);
        const truth = vocabulary[word];
        if (k >= 0) box(0, "mask");
        words(left + cell / 2, top + 15, truth, k < 0 ? "" : "hint");
        if (hidden.find((other) => Math.floor(other / across) === Math.floor(j / across)) === j) {
          names.forEach((name, n) => words(margin - 6, top + (n + 1) * line + 15, name, "hint", "end"));
        }
        if (k < 0) return [left + cell / 2, top + 11, `${truth}: visible`];
        const told = names.map((name, n) => {
          const [guess, chance] = [guesses[n][k], chances[n][k]];
          box(n + 1, `area ${guess[0] === word ? "blue" : "orange"}`).style.opacity = 0.1 + 0.5 * chance[0];
          const right = guess[0] === word ? "right" : ""; // underlined, so that colour is not alone
          words(left + cell / 2, top + (n + 1) * line + 15, vocabulary[guess[0]], right);
          return `${name}: ${guess.map((other, t) => `${vocabulary[other]} ${number(chance[t])}`).join(", ")}`;
        });
        return [left + cell / 2, top + 11, [`${truth}: hidden`, ...told].join("\n")];
      });
      words(margin, Math.ceil(D / across) * block + 14, `blue and underlined is right; point at a ${unit}`, "hint", "start");
      figure.points(points);
      figure.say([say]);
    };
  };

  Moving.kind("guesses", { build, lead });
})();
