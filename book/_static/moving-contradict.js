/* Two hidden words and four of the reader's guesses: two paths, one for each order, and the staircase of both.
 * data: words [2], start [4] (per cent: the first word, the second once the first is seen, the second, the first
 * once the second is seen), network: answers of every mask of eight letters (see moving-orders.js). */
(() => {
  "use strict";
  const { number, sum, count, add } = Moving;
  const COLOURS = ["orange", "blue"];
  const SCREEN = 640; // pixels: below this, panels stand one upon the other

  /* Scores of the two words in each order [[first, then], [first, then]]: four chances, two for each order. */
  const scores = ([a, b, c, d]) => [[a, b], [c, d]].map((order) => order.map(Math.log));
  /* The steps of the curve: the mean score with two words hidden, and with one. */
  const stairs = ([one, other]) => one.map((score, k) => (score + other[k]) / 2);
  /* What chance k would have to be for both orders to end together. */
  const mended = (chances, k) => {
    const other = k < 2 ? [2, 3] : [0, 1];
    return chances[other[0]] * chances[other[1]] / chances[k ^ 1];
  };
  /* How far "one of the two words is there" would be above certain, as no joint distribution allows. */
  const excess = ([a, b, c]) => a + c - a * b - 1;

  const build = (figure, data) => {
    const [first, second] = data.words;
    add(figure.controls, "div", { class: "moving-blanks" }, "The [\u00a0\u2003\u00a0] sat on the [\u00a0\u2003\u00a0].");
    const asks = [`The first word is ${first}`, `Given ${first}, the second is ${second}`,
      `The second word is ${second}`, `Given ${second}, the first is ${first}`];
    const [low, high] = Moving.reach(data.network);
    const apart = `${number(high - low, 0)} nats`;
    let oldest = [3, 2, 1, 0]; // the slider that was moved longest ago is first
    let fan = null; // of the network, once it is asked for
    const sliders = asks.map((ask, k) => {
      const slider = figure.range(ask, { min: 1, max: 99, value: data.start[k], text: (value) => `${value}%` });
      slider.parentElement.classList.add(COLOURS[k >> 1]);
      slider.addEventListener("input", () => {
        oldest = [...oldest.filter((one) => one !== k), k];
        fan = null;
      }, true); // before the figure is drawn
      slider.mark = add(slider.parentElement, "i", { "aria-hidden": "true" });
      return slider;
    });
    const below = add(figure.live, "div", { class: "moving-row" });
    const network = figure.button("", () => {
      fan = fan ? null : count(250).map(() => Moving.drops(data.network, Moving.shuffled(count(8))));
      figure.draw();
    }, below);
    const copy = figure.button("Copy a line to share", () => {
      navigator.clipboard?.writeText(copy.line).then(() => { copy.textContent = "Copied"; });
    }, below);

    const drawFan = () => {
      const ends = fan.map(sum);
      const said = `A published antibody network, on eight letters: its orders end between ${number(low, 1)} and ${
        number(high, 1)} nats, ${number(high - low, 1)} apart. The ${fan.length} drawn here span ${
        number(Math.max(...ends) - Math.min(...ends), 1)} of the 40,320.`;
      const [svg, width] = figure.sheet(300, said);
      const panel = new Moving.Panel(svg, { left: 0, top: 0, width, height: 300 }, { x: [0, 8], y: [1.05 * low, 0],
        xlabel: "letters uncovered", ylabel: "sum of the scores so far, nats", xticks: count(9), left: 42 });
      fan.forEach((fall) => {
        panel.line(count(9).map((n) => [n, sum(fall.slice(0, n))]), "blue fan");
        panel.dot(8, sum(fall), "blue half", 3);
      });
      for (const end of [low, high]) panel.rule("y", end, "black dashed");
      figure.points(ends.map((end) => [panel.x(8), panel.y(end), `one order ends at ${number(end)}`]));
      figure.say([said]);
    };

    const drawGuesses = () => {
      const chances = sliders.map((slider) => slider.value / 100);
      const [orders, fourth] = [scores(chances), oldest[0]];
      const [S, ends, wanted] = [stairs(orders), orders.map(sum), mended(chances, fourth)];
      const gap = Math.abs(ends[0] - ends[1]);
      const [closed, told] = [gap < 0.05, ends.map((end) => `${Math.round(100 * Math.exp(end))} in 100`)];
      const reachable = wanted > 0.005 && wanted < 0.995;
      sliders.forEach(({ mark }, k) => {
        mark.hidden = closed || k !== fourth || !reachable;
        mark.style.left = `${100 * (100 * wanted - 1) / 98}%`;
      });
      const area = `${number(S[0])} + ${number(S[1])} = ${number(sum(S))}`;
      const mend = `\u201c${asks[fourth]}\u201d: ${reachable ? `${Math.round(100 * wanted)}% would mend it`
        : "it cannot mend this alone, so move another"}.`;
      const say = closed && excess(chances) > 0.005
        ? [`Both orders say ${told[0]}, but then one of the two words would be more than certain: lower \u201c${asks[0]}\u201d.`]
        : closed ? [`Both orders give the sentence ${told[0]}. You have a log-probability: ${number(sum(S))} nats.`,
          `The two steps add up to it: ${area}.`]
          : [`Asked one way you give the sentence ${told[0]}, asked the other way ${told[1]}: ${number(gap)} nats apart. ${mend}`,
            `The two steps add up to the mean of your ends: ${area}.`];
      copy.line = `The [ ] sat on the [ ]. ${closed ? "I do not contradict myself" : `I contradict myself by ${number(gap)} nats`}. `
        + `An antibody network: by ${apart}, on eight letters. You?`;
      copy.textContent = "Copy a line to share";

      const wide = figure.width > SCREEN;
      const [svg, width] = figure.sheet(wide ? 230 : 420, `Two falling paths, and two steps. ${say.join(" ")}`);
      const part = (n) => (wide ? { left: n * width / 2, top: 0, width: width / 2, height: 230 }
        : { left: 0, top: n * 210, width, height: 210 });
      const depth = Math.min(-2.5, 1.2 * Math.min(...ends));
      const paths = new Moving.Panel(svg, part(0), { x: [0, 2.75], y: [depth, 0], xlabel: "words uncovered",
        ylabel: "sum of the scores so far, nats", xticks: [0, 1, 2], left: 42 });
      const steps = new Moving.Panel(svg, part(1), { x: [0.4, 2.6], y: [depth, 0], xlabel: "words hidden",
        ylabel: "mean score of a hidden word, nats", xticks: [1, 2], left: 42 });
      if (!closed) paths.box(1.97, 2.03, ...ends, "red");
      const upper = ends[0] > ends[1] ? 0 : 1;
      orders.forEach((order, k) => {
        const points = [[0, 0], [1, order[0]], [2, ends[k]]];
        paths.line(points, COLOURS[k]);
        points.slice(1).forEach(([x, y]) => paths.dot(x, y, COLOURS[k], 4));
        paths.name(2, ends[k], `${data.words[k]} first`, COLOURS[k], "start", 9, gap < 0.4 ? (k === upper ? -5 : 15) : 4);
      });
      [...S].reverse().forEach((value, k) => steps.box(k + 0.5, k + 1.5, value, 0, "blue step"));
      steps.line(Moving.steps([...S].reverse()), "blue");
      steps.name(1.5, depth, `area ${number(sum(S))}`, "blue", "middle", 0, -6); // below both steps
      figure.points([...orders.flatMap((order, k) => [[paths.x(1), paths.y(order[0]), `${data.words[k]} first: ${number(order[0])}`],
        [paths.x(2), paths.y(ends[k]), `${data.words[k]} first ends at ${number(ends[k])}`]]),
      ...S.map((value, k) => [steps.x(2 - k), steps.y(value), `${2 - k} hidden: ${number(value)}`])]);
      figure.say(say);
    };

    return () => {
      network.textContent = fan ? "Back to your own guesses" : `An antibody network contradicts itself by ${apart} on eight letters`;
      copy.hidden = Boolean(fan);
      (fan ? drawFan : drawGuesses)();
    };
  };

  Moving.kind("contradict", { build, scores, stairs, mended, excess });
})();
