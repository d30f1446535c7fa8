/* Drop heads and tails: what two networks expect of hidden flips, and the evidence that follows.
 * data: flips N; models [{name, colour, network, exact}], network and exact being the probability of heads
 * [r][k] after r visible flips, k of them heads; start: the first number of heads. */
(() => {
  "use strict";
  const { count, number, sum } = Moving;

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
      const truths = data.models.map(({ exact }) => sum(curve(exact, +heads.value)));
      const factor = areas[0] - areas[1];
      const better = data.models[factor > 0 ? 0 : 1].name;
      const say = [
        ...data.models.map(({ name }, k) =>
          `${name}: area ${number(areas[k])} nats, exact log evidence ${number(truths[k])}.`),
        `Log Bayes factor ${number(Math.abs(factor))} nats for ${better}; exact `
          + `${number(truths[0] - truths[1], 2, true)} for ${data.models[0].name}.`,
      ];
      const what = "Two staircases, the curves of two networks for one data set.";
      const [svg, width] = figure.sheet(300, `${what} ${say.join(" ")}`);
      const low = Math.min(...curves.flat());
      const panel = new Moving.Panel(svg, { left: 0, top: 0, width, height: 300 }, {
        x: [0.5, N + 0.5], y: [1.1 * low, 0], xlabel: "flips hidden, m", ylabel: "S(m), nats per flip" });
      curves.forEach((scores, k) => {
        const { colour, name } = data.models[k];
        panel.line(Moving.steps(scores), colour);
        const at = k ? N : 1;
        const above = scores[at - 1] >= curves[1 - k][at - 1];
        panel.name(k ? N + 0.5 : 0.5, scores[at - 1], name, colour, k ? "end" : "start", k ? -4 : 4, above ? -8 : 18);
      });
      const read = (k, m) => `${data.models[k].name}, ${m + 1} hidden: S = ${number(curves[k][m], 3)}`;
      figure.points(curves.flatMap((scores, k) => scores.map((score, m) =>
        [panel.x(m + 1), panel.y(score), read(k, m)])));
      figure.say(say);
    };
  };

  Moving.kind("coins", { build, curve });
})();
