/* The theorem, computed in the page: three normal variables with variance 1, the reader's correlations and values.
 * data: correlations [r12, r13, r23] and x [x1, x2, x3] to begin with. */
(() => {
  "use strict";
  const { number, apart, sum } = Moving;
  const LOG_2PI = Math.log(2 * Math.PI);
  const SMALLEST = 0.06; // of the determinant; below it, rounding reaches the twelfth decimal

  const matrix = ([r12, r13, r23]) => [[1, r12, r13], [r12, 1, r23], [r13, r23, 1]];

  const determinant = ([r12, r13, r23]) => 1 + 2 * r12 * r13 * r23 - r12 * r12 - r13 * r13 - r23 * r23;

  /* In words, why these correlations will not do; "" where they will. */
  const refusal = (correlations) => {
    const [r12, r13, r23] = correlations;
    const det = determinant(correlations);
    if (correlations.every((r) => Math.abs(r) < 1) && det > SMALLEST) return "";
    if (correlations.every((r) => Math.abs(r) < 1) && det > 1e-9) {
      return "Three variables with these correlations exist, but one of them is almost fixed by the others "
        + `(determinant ${number(det, 4)}), and rounding would spoil the twelfth decimal. `
        + "Move a correlation towards zero.";
    }
    const middle = r12 * r13;
    const half = Math.sqrt(Math.max(0, (1 - r12 * r12) * (1 - r13 * r13)));
    return "No three variables have these correlations: the matrix is not positive definite. "
      + `If the correlation of x1 and x2 is ${number(r12)} and that of x1 and x3 ${number(r13)}, then that of x2 and `
      + `x3 must lie between ${number(middle - half, 3)} and ${number(middle + half, 3)}; it is ${number(r23)}.`;
  };

  /* log p(x) from the determinant and the inverse (by cofactors) of the whole matrix. */
  const logProb = (correlations, x) => {
    const R = matrix(correlations);
    const cofactor = (i, j) => {
      const [a, b] = [0, 1, 2].filter((k) => k !== i);
      const [c, d] = [0, 1, 2].filter((k) => k !== j);
      return (-1) ** (i + j) * (R[a][c] * R[b][d] - R[a][d] * R[b][c]);
    };
    const det = sum([0, 1, 2].map((j) => R[0][j] * cofactor(0, j)));
    const quadratic = sum([0, 1, 2].flatMap((i) => [0, 1, 2].map((j) => x[i] * cofactor(i, j) * x[j]))) / det;
    return -0.5 * (3 * LOG_2PI + Math.log(det) + quadratic);
  };

  /* log p(x_j | x_seen): regress token j on the visible ones. `seen` holds at most two places. */
  const conditional = (correlations, x, j, seen) => {
    const R = matrix(correlations);
    let weights = [];
    if (seen.length === 1) weights = [R[j][seen[0]]];
    if (seen.length === 2) {
      const [a, b] = seen;
      const scale = 1 - R[a][b] * R[a][b];
      weights = [(R[j][a] - R[a][b] * R[j][b]) / scale, (R[j][b] - R[a][b] * R[j][a]) / scale];
    }
    const mean = sum(seen.map((s, k) => weights[k] * x[s]));
    const variance = 1 - sum(seen.map((s, k) => weights[k] * R[j][s]));
    return -0.5 * (LOG_2PI + Math.log(variance) + (x[j] - mean) ** 2 / variance);
  };

  /* All seven masks by size: [{size, score, masks: [{hidden, terms, mean}]}]. */
  const EVERY = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]];
  const masks = (correlations, x) => [1, 2, 3].map((size) => {
    const listed = EVERY.filter((hidden) => hidden.length === size).map((hidden) => {
      const seen = [0, 1, 2].filter((j) => !hidden.includes(j));
      const terms = hidden.map((j) => conditional(correlations, x, j, seen));
      return { hidden, terms, mean: sum(terms) / size };
    });
    return { size, masks: listed, score: sum(listed.map((mask) => mask.mean)) / listed.length };
  });

  const names = (tokens) => tokens.map((j) => `x${j + 1}`).join(", ");

  const table = (sizes) => {
    const made = document.createElement("table");
    const head = Moving.add(Moving.add(made, "thead"), "tr");
    for (const name of ["hidden", "each hidden token, given the visible ones", "mean"]) {
      Moving.add(head, "th", { scope: "col" }, name);
    }
    const body = Moving.add(made, "tbody");
    for (const { size, masks: listed, score } of sizes) {
      for (const { hidden, terms, mean } of listed) {
        const row = Moving.add(body, "tr");
        Moving.add(row, "td", {}, names(hidden));
        const seen = names([0, 1, 2].filter((j) => !hidden.includes(j)));
        const cell = Moving.add(row, "td");
        hidden.forEach((j, k) => {
          Moving.add(cell, "div", {}, `log p(${names([j])}${seen && ` | ${seen}`}) = ${number(terms[k], 4)}`);
        });
        Moving.add(row, "td", {}, number(mean, 4));
      }
      const row = Moving.add(body, "tr", { class: "size" });
      const count = listed.length === 1 ? "the one mask" : `${listed.length} masks`;
      Moving.add(row, "th", { scope: "row", colspan: 2 }, `S(x; ${size}), the mean over ${count}`);
      Moving.add(row, "td", {}, number(score, 4));
    }
    return made;
  };

  /* The scores end to end, and log p(x) as a line. */
  const draw = (figure, scores, total, words) => {
    const [svg, width] = figure.sheet(190, `The three scores laid end to end reach log p(x). ${words}`);
    const ends = scores.map((_, k) => sum(scores.slice(0, k + 1)));
    const [low, high] = [Math.min(0, total, ...ends), Math.max(0, total, ...ends)];
    const room = 0.08 * (high - low);
    const panel = new Moving.Panel(svg, { left: 0, top: 0, width, height: 190 },
      { x: [low - room, high + room], y: [0.4, 3.6], xlabel: "nats",
        yticks: [[3, "S(x; 1)"], [2, "S(x; 2)"], [1, "S(x; 3)"]] });
    scores.forEach((score, k) => {
      panel.box(k ? ends[k - 1] : 0, ends[k], 3.3 - k, 2.7 - k, "blue");
      panel.line([[ends[k], 3.3 - k], [ends[k], Math.max(0.4, 1.7 - k)]], "blue");
    });
    panel.rule("x", 0, "axis");
    panel.rule("x", total, "black dashed");
  };

  const build = (figure, data) => {
    const pairs = [["x1", "x2"], ["x1", "x3"], ["x2", "x3"]];
    const r = pairs.map(([a, b], k) => figure.range(`Correlation ${a}, ${b}`,
      { min: -0.9, max: 0.9, step: 0.05, value: data.correlations[k], text: (v) => number(v) }));
    const x = data.x.map((value, k) => figure.range(`Value x${k + 1}`,
      { min: -3, max: 3, step: 0.1, value, text: (v) => number(v, 1) }));
    const listing = Moving.add(figure.live, "div", { class: "moving-table" });
    figure.key([["blue area", "the scores, end to end"], ["black dashed", "log p(x), from the determinant"]]);

    return () => {
      const correlations = r.map((input) => +input.value);
      const values = x.map((input) => +input.value);
      const refused = refusal(correlations);
      figure.readout.classList.toggle("moving-warning", Boolean(refused));
      for (const part of [figure.picture, figure.legend, listing]) part.hidden = Boolean(refused);
      if (refused) { figure.say([refused]); return; }
      const sizes = masks(correlations, values);
      const scores = sizes.map((entry) => entry.score);
      const [area, total] = [sum(scores), logProb(correlations, values)];
      const words = [`S(x; 1) + S(x; 2) + S(x; 3) = ${number(area, 12)}`, `log p(x) = ${number(total, 12)}`,
        apart(area, total)];
      draw(figure, scores, total, words.join(". "));
      listing.replaceChildren(table(sizes));
      figure.say(words);
    };
  };

  Moving.kind("theorem", { build, refusal, logProb, conditional, masks });
})();
