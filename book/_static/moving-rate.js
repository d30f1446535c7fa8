/* Slide the masking rate along the MPT curve: area on either side, the bias of one rate, and the rate without bias.
 * data: cases [{name, scores, lml}], scores S(1..D) in nats per token, lml exact, nats per row; start: the first size. */
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

  /* The size nearest to a rate, at least one token. */
  const nearest = (rate, D) => Math.max(1, Math.round(rate * D));

  const build = (figure, data) => {
    const which = figure.select("Model and rows", data.cases.map((some) => some.name));
    const at = figure.range("Tokens masked, m", { min: 1, max: data.cases[0].scores.length, value: data.start,
      text: (m) => `${m} (${Math.round(100 * m / data.cases[+which.value].scores.length)}%)` });
    let [shown, rate] = [0, data.start / data.cases[0].scores.length]; // the rate asked for: D need not allow it
    at.addEventListener("input", () => { rate = at.value / at.max; });
    const go = () => { at.value = nearest(rate, +at.max); at.say(); };
    for (const percent of [15, 25]) {
      figure.button(`About ${percent}%`, () => { rate = percent / 100; go(); figure.draw(); });
    }
    figure.key([["black line", "the MPT curve S(m)"], ["orange area", "counted too much"], ["blue area", "left out"],
      ["green dashed", "LML divided by D"], ["red line", "the chosen rate"], ["green dot", "the rate without bias, m*"]]);

    return () => {
      const { scores, lml } = data.cases[+which.value];
      const D = scores.length;
      if (shown !== +which.value) { // another number of tokens: keep the rate
        [at.max, shown] = [D, +which.value];
        go();
      }
      const m = +at.value;
      const [height, B, free] = [scores[m - 1], biases(scores, lml), crossings(scores, lml)];
      const [near, far] = [sum(scores.slice(0, m)), sum(scores.slice(m))].map((value) => number(value));
      const places = free.map((place) => `${number(place)} (${number(100 * place / D, 0)}%)`).join(" and ");
      const words = [
        `Area of sizes 1 to ${m}: ${near}; of the sizes beyond: ${far}; exact LML: ${number(lml)} nats per row`,
        `One rate: ${D} × S(${m}) = ${number(D * height)}, a bias of ${number(B[m - 1], 2, true)} nats per row`,
        places ? `Without bias: m* = ${places}` : "No rate is without bias here",
      ];
      const what = "The MPT curve with a rectangle at the chosen rate, and the bias of every rate below it.";
      const [svg, width] = figure.sheet(400, `${what} ${words.join(". ")}`);
      const xticks = D <= 12 ? scores.map((_, k) => k + 1) : null;
      const [low, high] = [Math.min(...scores), Math.max(...scores)];
      const pad = 0.08 * (high - low);
      const curve = new Moving.Panel(svg, { left: 0, top: 0, width, height: 240 },
        { x: [0.5, D + 0.5], y: [low - pad, high + pad], ylabel: "S(m), nats per token", xticks });
      scores.forEach((score, k) => curve.box(k + 0.5, k + 1.5, score, height, score < height ? "orange" : "blue"));
      curve.line(Moving.steps(scores), "black");
      curve.rule("y", lml / D, "green dashed");
      curve.rule("y", height, "red thin");
      curve.rule("x", m, "red line");

      const reach = [Math.min(0, ...B), Math.max(0, ...B)];
      const room = 0.1 * (reach[1] - reach[0]);
      const bias = new Moving.Panel(svg, { left: 0, top: 236, width, height: 164 },
        { x: [0.5, D + 0.5], y: [reach[0] - room, reach[1] + room], xlabel: "tokens masked, m",
          ylabel: "bias of D S(m), nats per row", xticks });
      bias.rule("y", 0, "green dashed");
      bias.line(B.map((value, k) => [k + 1, value]), "black");
      bias.rule("x", m, "red line");
      bias.dot(m, B[m - 1], "red", 5);
      free.forEach((place) => bias.dot(place, 0, "green", 5));
      figure.say(words);
    };
  };

  Moving.kind("rate", { build, biases, crossings, nearest });
})();
