/* Slide the number of masks P, the number of tokens D and the seed: the estimate of the area closes in on the LML.
 * data: counts [C], the values of P; seeds [R]; cases, one for each D: {tokens, lml, spread, paths [R][C],
 * errors [R][C]}; spread: the theory's standard deviation at P = 1; errors: the estimates' own (null at P = 1).
 * Nats per row. */
(() => {
  "use strict";
  const { number } = Moving;

  /* What theory says of an estimate with P masks per size: its standard deviation. */
  const predicted = (spread, masks) => spread / Math.sqrt(masks);

  const build = (figure, data) => {
    const { counts, seeds, cases } = data;
    const slider = (label, values, value) => figure.range(label,
      { min: 0, max: values.length - 1, value, text: (k) => String(values[k]) });
    const at = slider("Masks per size, P", counts, counts.indexOf(10));
    const which = slider("Tokens, D", cases.map((some) => some.tokens), 1);
    const seed = slider("Seed", seeds, 0);
    figure.play(at, 150);
    figure.key([["blue line", "your seed so far"], ["blue line thin", "the other seeds"],
      ["orange dot", "the estimate, two standard errors"], ["grey area", "theory: two standard deviations"],
      ["black dashed", "exact LML"]]);
    const most = counts[counts.length - 1];

    return () => {
      const [k, own] = [+at.value, +seed.value];
      const { tokens, lml, spread, paths, errors } = cases[+which.value];
      const [masks, estimate, error] = [counts[k], paths[own][k], errors[own][k]];
      const off = estimate - lml;
      const words = [
        `D = ${tokens}, P = ${masks}: area ${number(estimate, 3)}`
          + (error === null ? " nats per row; one mask per size has no error bar" : ` ± ${number(error, 3)} nats per row`),
        `Exact LML ${number(lml, 3)}: off by ${number(off, 3, true)} nats per row`,
        `Theory expects a standard deviation of ${number(predicted(spread, masks), 3)}`,
      ];
      const what = "The estimate of the area against the number of masks per size.";
      const [svg, width] = figure.sheet(300, `${what} ${words.join(". ")}`);
      const reach = 3.2 * spread;
      const panel = new Moving.Panel(svg, { left: 0, top: 0, width, height: 300 },
        { x: [0.9, most * 1.1], y: [-reach, reach], xlog: true, xlabel: "masks per size, P",
          ylabel: "area \u2212 LML, nats per row", xticks: [1, 2, 5, 10, 20, 50, 100, 200].filter((p) => p <= most) });
      const band = counts.map((p) => [p, 2 * predicted(spread, p)]);
      panel.area([...band, ...band.map(([p, y]) => [p, -y]).reverse()], "grey");
      panel.rule("y", 0, "black dashed");
      const kept = (value) => Math.max(-reach, Math.min(reach, value - lml));
      paths.forEach((path, r) => { if (r !== own) panel.line(counts.map((p, i) => [p, kept(path[i])]), "blue thin"); });
      panel.line(counts.slice(0, k + 1).map((p, i) => [p, kept(paths[own][i])]), "blue");
      if (error !== null) panel.line([-2, 2].map((side) => [masks, kept(estimate + side * error)]), "orange");
      panel.dot(masks, kept(estimate), "orange", 5.5);
      figure.say(words);
    };
  };

  Moving.kind("convergence", { build, predicted });
})();
