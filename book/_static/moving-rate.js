/* Slide the masking rate along the MPT curve: area on either side, the bias, and the rate without it.
 * data: cases [{name, scores, lml}], scores S(1..D) per token, lml exact, per row, nats; start: the first m. */
(() => {
  "use strict";
  const { number, sum } = Moving;

  /* B(m) = D S(m) - LML at every size, nats per row. */
  const biases = (scores, lml) => scores.map((score) => scores.length * score - lml);

  /* Where the bias, read off straight lines, passes zero: a list of sizes, seldom more than one. */
  const crossings = (scores, lml) => {
    const B = biases(scores, lml);
    return B.slice(1).flatMap((value, k) => {
      if (B[k] === 0) return [k + 1];
      return B[k] * value < 0 ? [k + 1 + B[k] / (B[k] - value)] : [];
    });
  };

  /* Loss per row, in nats, that a rectangle at size m leaves out, and loss that it adds; their difference is B(m). */
  const parts = (scores, m) => [1, -1].map((sign) => (
    sum(scores.map((score) => Math.max(0, sign * (scores[m - 1] - score))))));

  const build = (figure, data) => {
    const which = figure.select("Model and rows", data.cases.map((some) => some.name));
    const at = figure.range("Tokens masked, m", { min: 1, max: data.cases[0].scores.length, value: data.start,
      text: (m) => `${m} (${Math.round(100 * m / data.cases[+which.value].scores.length)}%)` });
    return () => {
      const { scores, lml } = data.cases[+which.value];
      const D = scores.length;
      if (+at.max !== D) { // another number of tokens: keep the rate
        const rate = at.value / at.max;
        [at.max, at.value] = [D, Math.round(rate * D)];
      }
      at.say();
      const m = +at.value;
      const [leftOut, added] = parts(scores, m);
      const [height, B, free] = [scores[m - 1], biases(scores, lml), crossings(scores, lml)];
      const say = `Judged by masks of ${m} of ${D} tokens alone, the LML comes out `
        + `${number(Math.abs(B[m - 1]))} nats per row too ${B[m - 1] < 0 ? "low" : "high"}: `
        + `they leave out ${number(leftOut)} nats of loss, and add ${number(added)}.`;
      const what = "The MPT curve with a rectangle at the chosen rate, and the bias of every rate below it.";
      const [svg, width] = figure.sheet(430, `${what} ${say}`);
      const xticks = D <= 12 ? scores.map((_, k) => k + 1) : null;
      const [low, high] = [Math.min(0, ...scores), Math.max(0, ...scores)];
      const pad = 0.08 * (high - low);
      const curve = new Moving.Panel(svg, { left: 0, top: 0, width, height: 250 },
        { x: [0.5, D + 0.5], y: [low - pad, high + pad], ylabel: "S(m), nats per token", xticks });
      curve.box(0.5, D + 0.5, 0, height, "grey faint");
      scores.forEach((score, k) => curve.box(k + 0.5, k + 1.5, score, height, score < height ? "blue" : "green"));
      curve.line(Moving.steps(scores), "blue");
      curve.rule("y", lml / D, "black dashed");
      curve.line([[0.5, height], [D + 0.5, height]], "green");
      curve.dot(m, height, "green grip", 7);
      curve.words(curve.left + 6, curve.top + 20, `rectangle at ${Math.round(100 * m / D)}%`, "start", "name grey");
      curve.words(curve.left + 6, curve.top + 36, "dashed: mean height", "start", "name black");
      [["blue", "loss it leaves out", 1], ["green", "loss it adds", -1]].forEach(([colour, text, sign]) => {
        const gaps = scores.map((score) => sign * (height - score));
        const most = gaps.indexOf(Math.max(...gaps)); // at the step with most of it, above or below the line
        const [end, anchor] = most < D / 2 ? [0.5, "start"] : [1.5, "end"];
        if (gaps[most] > 0) curve.name(most + end, height, text, colour, anchor, 12 * (1 - end), sign < 0 ? -7 : 16);
      });

      const reach = [Math.min(0, ...B), Math.max(0, ...B)];
      const room = 0.15 * (reach[1] - reach[0]);
      const bias = new Moving.Panel(svg, { left: 0, top: 246, width, height: 184 },
        { x: [0.5, D + 0.5], y: [reach[0] - room, reach[1] + room], xlabel: "tokens masked, m",
          ylabel: "bias of D S(m), nats per row", xticks });
      bias.rule("y", 0, "black dashed");
      for (const percent of [15, 25]) {
        bias.rule("x", percent * D / 100, "grid");
        bias.words(bias.x(percent * D / 100), B[0] < 0 ? bias.top + 10 : bias.bottom - 4, `${percent}%`,
          percent < 20 ? "end" : "start");
      }
      bias.line(B.map((value, k) => [k + 1, value]), "green");
      bias.rule("x", m, "green thin");
      bias.dot(m, B[m - 1], "green grip", 7);
      free.forEach((place) => {
        bias.dot(place, 0, "black", 5);
        const [left, falls] = [place > 0.7 * D, B[Math.floor(place) - 1] > 0]; // the words keep off the curve
        bias.name(place, 0, `no bias at ${number(place)}`, "black", left ? "end" : "start", 0,
          left === falls ? 20 : -8);
      });
      const read = (k) => `m = ${k + 1} (${Math.round(100 * (k + 1) / D)}%): S = ${number(scores[k], 3)}, `
        + `bias ${number(B[k], 2, true)}`;
      figure.points([...scores.map((score, k) => [curve.x(k + 1), curve.y(score), read(k)]),
        ...B.map((value, k) => [bias.x(k + 1), bias.y(value), read(k)])]);
      figure.say([say]);
    };
  };

  Moving.kind("rate", { build, biases, crossings, parts });
})();
