/* Scrub through training: the MPT curve rises and its area reaches the log marginal likelihood.
 * data: tokens D; epochs [E]; curves [E][D], S(1..D) in nats per token; areas, errors, lmls [E] and truth, nats per row. */
(() => {
  "use strict";
  const { number } = Moving;

  const build = (figure, data) => {
    const last = data.epochs.length - 1;
    const at = figure.range("Epoch", { min: 0, max: last, value: 0, text: (k) => String(data.epochs[k]) });
    figure.play(at);
    figure.key([["blue area", "area under the curve: the estimate"], ["black dashed", "exact LML (left: divided by D)"],
      ["orange line", "weights that made the rows"]]);
    const D = data.tokens;
    const lowest = Math.min(...data.curves.flat()) * 1.08;
    const level = [Math.min(...data.lmls) * 1.05, Math.max(data.truth, ...data.lmls) * 0.6];

    return () => {
      const k = +at.value;
      const [epoch, area, error, lml] = [data.epochs[k], data.areas[k], data.errors[k], data.lmls[k]];
      const words = [`Epoch ${epoch}: area ${number(area)} ± ${number(error)} nats per row`, `Exact LML ${number(lml)}`,
        `LML of the weights that made the rows ${number(data.truth)}`];
      const narrow = figure.picture.clientWidth < 520;
      const what = "The MPT curve and the log marginal likelihood during training.";
      const [svg, width] = figure.sheet(narrow ? 470 : 280, `${what} ${words.join(". ")}`);
      const half = narrow ? width : Math.round(width * 0.54);
      const percent = [25, 50, 75, 100].map((p) => [p * D / 100, `${p}%`]);

      const curve = new Moving.Panel(svg, { left: 0, top: 0, width: half, height: 280 },
        { x: [0.5, D + 0.5], y: [lowest, 0.5], xlabel: "tokens masked", ylabel: "S(m), nats per token", xticks: percent,
          left: 42 });
      const steps = Moving.steps(data.curves[k]);
      curve.area([[0.5, 0], ...steps, [D + 0.5, 0]], "blue");
      curve.line(steps, "blue");
      curve.rule("y", lml / D, "black dashed");

      const box = narrow ? { left: 0, top: 280, width, height: 190 }
        : { left: half, top: 0, width: width - half, height: 280 };
      const path = new Moving.Panel(svg, box,
        { x: [0, data.epochs[last]], y: level, xlabel: "epoch", ylabel: "nats per row", left: 54 });
      path.rule("y", data.truth, "orange line");
      path.line(data.epochs.map((e, i) => [e, data.lmls[i]]), "black dashed");
      data.epochs.forEach((e, i) => { if (i <= k) path.dot(e, data.areas[i], "blue", 2.5); });
      path.rule("x", epoch, "grey");
      path.dot(epoch, area, "blue", 5.5);
      figure.say(words);
    };
  };

  Moving.kind("training", { build });
})();
