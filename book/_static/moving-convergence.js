/* Slide the number of masks P, or choose the number of tokens D and the seed: the area closes in on the LML.
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
    const at = figure.range("Masks per size, P",
      { min: 0, max: counts.length - 1, value: counts.indexOf(10), text: (k) => String(counts[k]) });
    figure.play(at, 150);
    const which = figure.choice("Tokens, D", cases.map((some) => some.tokens), 1);
    const seed = figure.choice("Seed", seeds);
    const most = counts[counts.length - 1];
    const reach = 2.4 * Math.max(...cases.map((some) => some.spread)); // one scale for every D

    return () => {
      const [k, own] = [+at.value, seed.value];
      const { tokens, lml, spread, paths, errors } = cases[which.value];
      const [masks, off, error] = [counts[k], paths[own][k] - lml, errors[own][k]];
      const say = `With ${tokens} tokens and P = ${masks}, the area misses the exact LML by `
        + `${number(off, 3, true)} nats per row.`;
      const [svg, width] = figure.sheet(320, `The estimate of the area against the number of masks per size. ${say}`);
      const panel = new Moving.Panel(svg, { left: 0, top: 0, width, height: 320 },
        { x: [0.9, most * 1.1], y: [-reach, reach], xlog: true, xlabel: "masks per size, P",
          ylabel: "area \u2212 LML, nats per row", xticks: [1, 2, 5, 10, 20, 50, 100, 200].filter((p) => p <= most) });
      const band = counts.map((p) => [p, 2 * predicted(spread, p)]);
      panel.area([...band, ...band.map(([p, y]) => [p, -y]).reverse()], "grey");
      panel.rule("y", 0, "black dashed");
      paths.forEach((path, r) => { if (r !== own) panel.line(counts.map((p, i) => [p, path[i] - lml]), "blue thin"); });
      panel.line(counts.slice(0, k + 1).map((p, i) => [p, paths[own][i] - lml]), "blue");
      if (error !== null) panel.line([-2, 2].map((side) => [masks, off + side * error]), "orange");
      panel.dot(masks, off, "orange grip", 7);
      panel.name(most, 0, `exact LML, ${number(lml, 2)}`, "black", "end", 0, 16);
      panel.name(1, -2 * spread, "theory: two standard deviations", "grey", "start", 0, 18);
      panel.name(masks, off, `seed ${seeds[own]}`, "orange", masks > 20 ? "end" : "start", masks > 20 ? -12 : 12, -12);
      panel.words(panel.right, panel.bottom - 10, "drag the dot \u2194", "end", "hint");
      figure.slide(panel, at, counts.map((p) => panel.x(p)));
      figure.points(counts.map((p, i) => {
        const bar = errors[own][i] === null ? "" : ` ± ${number(errors[own][i], 3)}`;
        return [panel.x(p), panel.y(paths[own][i] - lml), `P = ${p}: ${number(paths[own][i], 3)}${bar}`];
      }));
      figure.say([say]);
    };
  };

  Moving.kind("convergence", { build, predicted });
})();
