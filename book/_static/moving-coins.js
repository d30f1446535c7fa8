/* Drop heads and tails: what two networks expect of hidden flips, and the evidence that follows.
 * data: flips N; models [{name, network, exact}], network and exact being the probability of heads
 * [r][k] after r visible flips, k of them heads; start: the first number of heads. */
(() => {
  "use strict";
  const { count, number, sum } = Moving;
  const COLOURS = ["blue", "red"];

  /* log n! for n = 0..most. */
  const factorials = (most) => count(most).reduce((logs, n) => [...logs, logs[n] + Math.log(n + 1)], [0]);

  /* The curve S(1..N) of a data set with so many heads. Of r visible flips k are heads with the hypergeometric
   * probability; a hidden one is then a head with probability (heads - k) / (N - r). */
  const curve = (chance, heads) => {
    const N = chance.length;
    const logs = factorials(N);
    const choose = (n, k) => logs[n] - logs[k] - logs[n - k];
    return count(N).map((at) => {
      const r = N - at - 1;
      const possible = count(r + 1).filter((k) => k <= heads && r - k <= N - heads);
      return sum(possible.map((k) => {
        const weight = Math.exp(choose(heads, k) + choose(N - heads, r - k) - choose(N, r));
        const share = (heads - k) / (N - r);
        const score = (part, p) => (part ? part * Math.log(p) : 0);
        return weight * (score(share, chance[r][k]) + score(1 - share, 1 - chance[r][k]));
      }));
    });
  };

  const build = (figure, data) => {
    const N = data.flips;
    const told = (k) => `${k} heads, ${N - k} tails`;
    const heads = figure.range(`Of ${N} flips`, { min: 0, max: N, value: data.start, text: told });
    return () => {
      const curves = data.models.map(({ network }) => curve(network, +heads.value));
      const areas = curves.map(sum);
      const truth = data.models.map(({ exact }) => sum(curve(exact, +heads.value)));
      const prefers = (difference) =>
        `${data.models[difference > 0 ? 0 : 1].name} by ${number(Math.abs(difference))} nats`;
      const say = [
        ...data.models.map(({ name }, k) =>
          `${name}: area ${number(areas[k])}, exact log evidence ${number(truth[k])} nats.`),
        `The areas prefer ${prefers(areas[0] - areas[1])}; that estimates the log Bayes factor. `
          + `The left ends, leave-one-out over all flips, prefer ${prefers(N * (curves[0][0] - curves[1][0]))}.`,
      ];
      const what = "Two staircases, the curves of two networks for one data set, and the area between them.";
      const [svg, width] = figure.sheet(320, `${what} ${say.join(" ")}`);
      const [low, high] = [Math.min(...curves.flat()), Math.max(...curves.flat())];
      const room = Math.max(0.02, 0.25 * (high - low));
      const panel = new Moving.Panel(svg, { left: 0, top: 0, width, height: 320 }, {
        x: [0.5, N + 0.5], y: [low - room, Math.min(0, high + room)], xlabel: "flips hidden, m", ylabel: "S(m), nats per flip" });
      curves[0].forEach((score, k) => {
        panel.box(k + 0.5, k + 1.5, score, curves[1][k], COLOURS[score > curves[1][k] ? 0 : 1]);
      });
      curves.forEach((scores, k) => {
        panel.line(Moving.steps(scores), COLOURS[k]);
        panel.dot(1, scores[0], COLOURS[k], 6);
      });
      panel.rule("x", 1.5, "grey dashed");
      panel.words(panel.x(1.5) + 6, panel.bottom - 10, "\u2190 left end: leave one out", "start");
      panel.words(panel.right - 4, panel.bottom - 10, "all hidden", "end");
      const middle = curves.map((scores) => scores[Math.floor(N / 4)]);
      curves.forEach((_, k) => { // names stand above and below the two curves
        const above = middle[k] > middle[1 - k] || (middle[k] === middle[1 - k] && k);
        panel.name(N / 4 + 1, middle[k], data.models[k].name, COLOURS[k], "start", 0, above ? -12 : 22);
      });
      const read = (k, m) => `${data.models[k].name}, ${m + 1} hidden: S = ${number(curves[k][m], 3)}`;
      figure.points(curves.flatMap((scores, k) => scores.map((score, m) =>
        [panel.x(m + 1), panel.y(score), read(k, m)])));
      figure.say(say);
    };
  };

  Moving.kind("coins", { build, curve });
})();
