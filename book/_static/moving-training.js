/* Scrub through training: the MPT curve rises and its area reaches the log marginal likelihood.
 * data: tokens D; epochs [E]; curves [E][D], S(1..D) in nats per token; areas, errors, lmls [E] and truth, nats per
 * row. */
(() => {
  "use strict";
  const { number } = Moving;

  const build = (figure, data) => {
    const { tokens: D, epochs, curves, areas, errors, lmls, truth } = data;
    const last = epochs.length - 1;
    const at = figure.range("Epoch", { min: 0, max: last, value: 0, text: (k) => String(epochs[k]) });
    figure.play(at);
    const zoom = figure.choice("Heights", ["whole run", "end of training"]);

    return () => {
      const [k, from] = [+at.value, zoom.value ? Math.floor(0.6 * last) : 0]; // what the axes must show begins there
      const off = areas[k] - lmls[k];
      const say = `At epoch ${epochs[k]} the area misses the exact LML by ${number(off, 3, true)} nats per row.`;
      const narrow = figure.picture.clientWidth < 520;
      const what = "The MPT curve, and the log marginal likelihood during training.";
      const [svg, width] = figure.sheet(narrow ? 500 : 290, `${what} ${say}`);
      const half = narrow ? width : Math.round(width * 0.52);
      const percent = [25, 50, 75, 100].map((p) => [p * D / 100, `${p}%`]);

      const curve = new Moving.Panel(svg, { left: 0, top: 0, width: half, height: 290 },
        { x: [0.5, D + 0.5], y: [Math.min(...curves.slice(from).flat()) * 1.08, zoom.value ? 0.1 : 0.5],
          xticks: percent, xlabel: "tokens masked", ylabel: "S(m), nats per token", left: 42 });
      const steps = Moving.steps(curves[k]);
      curve.area([[0.5, 0], ...steps, [D + 0.5, 0]], "blue");
      curve.line(steps, "blue");
      curve.rule("y", lmls[k] / D, "black dashed");
      curve.name(0.25 * D, 0, `area ${number(areas[k])}`, "blue", "start", 0, 18);
      curve.name(D, lmls[k] / D, "exact LML divided by D", "black", "end", -14, curves[k][0] < lmls[k] / D ? -8 : 18);

      const box = narrow ? { left: 0, top: 290, width, height: 210 }
        : { left: half, top: 0, width: width - half, height: 290 };
      const shown = [...lmls.slice(from), ...areas.slice(from), truth];
      const [low, high] = [Math.min(...shown), Math.max(...shown)];
      const room = 0.12 * (high - low);
      const path = new Moving.Panel(svg, box, { x: [0, epochs[last]], y: [low - room, high + 2 * room], xlabel: "epoch",
        ylabel: "nats per row", xticks: Moving.ticks(0, epochs[last], 3) });
      path.rule("y", truth, "orange line");
      path.line(epochs.map((e, i) => [e, lmls[i]]), "black dashed");
      epochs.forEach((e, i) => { if (i <= k && areas[i] >= low) path.dot(e, areas[i], "blue", 2.5); });
      path.rule("x", epochs[k], "grey");
      path.dot(epochs[k], areas[k], "blue grip", 7);
      path.name(epochs[last], truth, "weights that made the rows", "orange", "end");
      path.name(epochs[last], lmls[last], "exact LML", "black", "end", 0, 24);
      if (!figure.used) path.words(path.right, path.bottom - 12, "drag the dot \u2194", "end", "hint");
      figure.slide(path, at, epochs.map((e) => path.x(e)));
      figure.points([
        ...curves[k].map((score, i) => [curve.x(i + 1), curve.y(score), `S(${i + 1}) = ${number(score, 3)}`]),
        ...epochs.map((e, i) => [path.x(e), path.y(areas[i]),
          `epoch ${e}: area ${number(areas[i])} ± ${number(errors[i])}\nexact LML ${number(lmls[i])}`]),
      ]);
      figure.say([say]);
    };
  };

  Moving.kind("training", { build });
})();
