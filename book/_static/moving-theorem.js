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
  const logProb = ([a, b, c], [x, y, z]) => {
    const det = 1 + 2 * a * b * c - a * a - b * b - c * c;
    const squares = (1 - c * c) * x * x + (1 - b * b) * y * y + (1 - a * a) * z * z;
    const products = (b * c - a) * x * y + (a * c - b) * x * z + (a * b - c) * y * z;
    return -0.5 * (3 * LOG_2PI + Math.log(det) + (squares + 2 * products) / det);
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

  /* The terms of the masks of one size, a line for each mask. */
  const told = ({ masks: listed }) => listed.map(({ hidden, terms }) => {
    const seen = names([0, 1, 2].filter((j) => !hidden.includes(j))) || "nothing";
    return `given ${seen}: ${hidden.map((j, k) => `${names([j])} ${number(terms[k], 4)}`).join(", ")}`;
  }).join("\n");

  const build = (figure, data) => {
    const r = ["x1, x2", "x1, x3", "x2, x3"].map((pair, k) => figure.range(`corr(${pair})`,
      { min: -MOST, max: MOST, step: STEP, value: data.correlations[k], text: (v) => number(v) }));
    let wanted = data.correlations[2];
    r[2].addEventListener("input", () => { wanted = +r[2].value; });
    const x = data.x.map((value, k) => figure.range(`Value x${k + 1}`,
      { min: -3, max: 3, step: 0.1, value, text: (v) => number(v, 1) }));

    return () => {
      const first = [+r[0].value, +r[1].value];
      const [min, max] = reach(...first);
      Object.assign(r[2], { min, max, value: Math.max(min, Math.min(max, wanted)) });
      r[2].say();
      const [correlations, values] = [[...first, +r[2].value], x.map((input) => +input.value)];
      const sizes = masks(correlations, values);
      const scores = sizes.map((entry) => entry.score);
      const [area, total] = [sum(scores), logProb(correlations, values)].map((value) => number(value, 6));
      const say = `S(x; 1) + S(x; 2) + S(x; 3) = ${area}: log p(x) is ${area === total ? "the same" : total}.`;
      const [svg, width] = figure.sheet(330, `The three scores laid end to end reach log p(x). ${say}`);
      const row = new Moving.Panel(svg, { left: 0, top: 0, width, height: 125 },
        { x: [-3.2, 3.2], y: [0.4, 3.6], yticks: [[3, "x1"], [2, "x2"], [1, "x3"]] });
      values.forEach((value, k) => row.dot(value, 3 - k, "orange grip", 8));
      row.words(row.left + 8, row.y(3) - 4, "drag a dot \u2194", "start", "hint");
      const ends = [0, ...scores.map((_, k) => sum(scores.slice(0, k + 1)))];
      const [low, high] = [Math.min(...ends), Math.max(...ends)];
      const room = 0.08 * (high - low);
      const bars = new Moving.Panel(svg, { left: 0, top: 130, width, height: 200 },
        { x: [low - room, high + room], y: [0.4, 3.6], xlabel: "nats",
          yticks: [[3, "S(x; 1)"], [2, "S(x; 2)"], [1, "S(x; 3)"]] });
      bars.rule("x", 0, "axis");
      bars.rule("x", ends[3], "black dashed");
      scores.forEach((score, k) => {
        bars.box(ends[k], ends[k + 1], 3.3 - k, 2.7 - k, "blue");
        bars.line([[ends[k + 1], 3.3 - k], [ends[k + 1], Math.max(0.4, 1.7 - k)]], "blue");
      });
      const left = ends[3] - low < high - ends[3];
      bars.name(ends[3], 3, "log p(x)", "black", left ? "start" : "end", left ? 6 : -6, 4);
      const middle = (k) => bars.x((ends[k] + ends[k + 1]) / 2);
      scores.forEach((score, k) => bars.words(middle(k), bars.y(3 - k) + 4, number(score, 3), "middle"));
      const places = [...Array(61).keys()].map((step) => row.x(-3 + 0.1 * step));
      x.forEach((input, k) => {
        figure.slide({ left: row.left, right: row.right, top: row.y(3.5 - k), bottom: row.y(2.5 - k) }, input, places);
      });
      figure.points(sizes.map((entry, k) => [middle(k), bars.y(3 - k), told(entry)]));
      figure.say([say]);
    };
  };

  Moving.kind("theorem", { build, reach, logProb, masks });
})();
