/* The theorem, computed in the page: three normal variables with variance 1, the reader's correlations and values.
 * data: correlations [r12, r13, r23] and x [x1, x2, x3] to begin with. */
(() => {
  "use strict";
  const { number, sum } = Moving;
  const LOG_2PI = Math.log(2 * Math.PI);
  const [MOST, STEP] = [0.9, 0.05]; // of a correlation
  const SMALLEST = 0.005; // of the determinant: at 0 one variable is fixed by the others, and has no density

  const matrix = ([r12, r13, r23]) => [[1, r12, r13], [r12, 1, r23], [r13, r23, 1]];

  /* Between which two values r23 must lie where the other two are given: the ends make the matrix singular. */
  const limits = (r12, r13) => {
    const half = Math.sqrt((1 - r12 * r12) * (1 - r13 * r13));
    return [r12 * r13 - half, r12 * r13 + half];
  };

  /* The first and the last place of the third slider: multiples of its step inside the limits, but for a margin. */
  const reach = (r12, r13) => {
    const [low, high] = limits(r12, r13);
    const margin = (high - low) / 2 - Math.sqrt((high - low) ** 2 / 4 - SMALLEST); // det R = (r23 - low) (high - r23)
    const places = [Math.ceil((low + margin) / STEP), Math.floor((high - margin) / STEP)];
    return places.map((place) => Math.max(-MOST, Math.min(MOST, +(place * STEP).toFixed(2))));
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

  /* How far the sum of the scores is from what it should be, relative to their sizes; and the same in words. */
  const error = (scores, total) => Math.abs(sum(scores) - total) / sum(scores.map(Math.abs));
  const apart = (scores, total) => {
    const gap = error(scores, total);
    if (!gap) return "They are equal to the last digit";
    const [digit, power] = gap.toExponential(0).split("e");
    const raised = [...power].map((figure) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[figure] || "⁻").join("");
    return `They differ by rounding: by ${digit} × 10${raised} of their size`;
  };

  const build = (figure, data) => {
    const pairs = [["x1", "x2"], ["x1", "x3"], ["x2", "x3"]];
    const r = pairs.map(([a, b], k) => figure.range(`Correlation ${a}, ${b}`,
      { min: -MOST, max: MOST, step: STEP, value: data.correlations[k], text: (v) => number(v) }));
    let wanted = data.correlations[2];
    r[2].addEventListener("input", () => { wanted = +r[2].value; });
    const x = data.x.map((value, k) => figure.range(`Value x${k + 1}`,
      { min: -3, max: 3, step: 0.1, value, text: (v) => number(v, 1) }));
    const listing = Moving.add(figure.live, "div", { class: "moving-table" });
    figure.key([["blue area", "the scores, end to end"], ["black dashed", "log p(x), from the determinant"]]);

    return () => {
      const first = [+r[0].value, +r[1].value];
      const [min, max] = reach(...first);
      Object.assign(r[2], { min, max, value: Math.max(min, Math.min(max, wanted)) });
      r[2].say();
      const correlations = [...first, +r[2].value];
      const sizes = masks(correlations, x.map((input) => +input.value));
      const scores = sizes.map((entry) => entry.score);
      const [area, total] = [sum(scores), logProb(correlations, x.map((input) => +input.value))];
      const [low, high] = limits(...first).map((end) => number(end));
      const words = [`S(x; 1) + S(x; 2) + S(x; 3) = ${number(area, 6)}`, `log p(x) = ${number(total, 6)}`,
        apart(scores, total),
        `With the first two correlations, that of x2 and x3 lies between ${low} and ${high}, and its slider stays inside.`];
      draw(figure, scores, total, words.join(". "));
      listing.replaceChildren(table(sizes));
      figure.say(words);
    };
  };

  Moving.kind("theorem", { build, limits, reach, error, logProb, conditional, masks });
})();
