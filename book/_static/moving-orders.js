/* Uncover a text word by word, in any order: the scores fall along a path to log p(x); sorted by how many words
 * were hidden, they pile up to the steps of the curve.
 * data: cases [{button, words [D], answers [2^D]}], answers of the mask whose bit j says that word j is
 * hidden: log p of each hidden word in order, nats; order: the first one; start: the words uncovered at first. */
(() => {
  "use strict";
  const { number, sum, mean, count, add } = Moving;

  const build = (figure, data) => {
    const D = data.order.length;
    let [at, orders] = [0, [data.order]];
    const shuffle = (times) => {
      orders = [...orders, ...count(times).map(() => Moving.shuffled(count(D)))];
      shown.value = D;
      shown.say();
      figure.draw();
    };
    figure.button("Shuffle once", () => shuffle(1));
    figure.button("Shuffle 200 times", () => { orders = []; shuffle(200); });
    const swap = figure.button("", () => { at = 1 - at; figure.draw(); });
    const row = add(figure.controls, "div", { class: "moving-row" });
    const shown = figure.range("Words uncovered", { min: 0, max: D, value: data.start, text: (k) => `${k} of ${D}` });

    return () => {
      const { answers, words } = data.cases[at];
      swap.textContent = data.cases[1 - at].button;
      const [S, k, last] = [Moving.curve(answers, D), +shown.value, orders.at(-1)];
      const [falls, [low, high]] = [orders.map((order) => Moving.drops(answers, order)), Moving.reach(answers)];
      const [own, ends, area, closed] = [falls.at(-1), falls.map(sum), sum(S), high - low < 0.01];
      const path = (fall, to = D) => count(to + 1).map((n) => [n, sum(fall.slice(0, n))]);
      const [sums, whole] = [`bars of ${orders.length} of the 40,320 orders add up to`, k === D || orders.length > 1];
      row.replaceChildren();
      words.forEach((word, j) => {
        const seen = last.indexOf(j) < k;
        add(row, "b", { class: seen ? "" : "masked" }, seen ? word : "\u2007".repeat(word.length));
      });

      const say = [k ? `${last.slice(0, k).map((j) => words[j]).join(" \u00b7 ")}: ${number(path(own)[k][1])} nats so far.`
        : "Nothing is uncovered.",
      closed ? `Every order ends at ${number(area)}, which is log p(x)${whole ? `; the ${sums} ${number(mean(ends))}` : ""}.`
        : `Orders end between ${number(low)} and ${number(high)}: there is no single log p(x).${whole ? ` The ${sums
          } the mean of their ends, ${number(mean(ends))}; those of all orders to the area, ${number(area)}.` : ""}`];
      const wide = figure.width > 620;
      const [svg, width] = figure.sheet(wide ? 290 : 540, `Falling paths, and the steps of the curve. ${say.join(" ")}`);
      const part = (n) => (wide ? { left: n * width / 2, top: 0, width: width / 2, height: 290 }
        : { left: 0, top: n * 270, width, height: 270 });
      const fan = new Moving.Panel(svg, part(0), { x: [0, D], y: [1.08 * low, 0], xlabel: "words uncovered",
        ylabel: "sum of the scores so far, nats", xticks: count(D + 1), left: 42 });
      const bars = new Moving.Panel(svg, part(1), { x: [0.4, D + 0.6], y: [1.05 * Math.min(...answers.flat()), 0],
        xlabel: "words hidden, m", ylabel: "score of the next word, nats", xticks: count(D).map((m) => m + 1), left: 42 });
      falls.forEach((fall) => {
        fan.line(path(fall), "blue fan");
        fan.dot(D, sum(fall), "blue half", 3);
      });
      fan.rule("y", area, "black dashed");
      fan.name(0, area, `${closed ? "log p(x)" : "area"} = ${number(area)}`, "black", "start", 6);
      fan.line(path(own, k), "orange");
      path(own, k).forEach(([x, y]) => fan.dot(x, y, "orange", 4));
      count(D).forEach((n) => { // n words uncovered
        const m = D - n;
        if (n >= k && !whole) return;
        bars.box(m - 0.5, m + 0.5, mean(falls.map((fall) => fall[n])), 0, "blue step");
        falls.forEach((fall, i) => bars.dot(m + 0.7 * (i * 0.618 % 1 - 0.5), fall[n], "grey half", 2));
        if (n < k) bars.dot(m, own[n], "orange", 5);
      });
      bars.line(Moving.steps(S), "blue");
      bars.name(0.6, 1.05 * Math.min(...answers.flat()), "line: all orders; bars: orders tried", "blue", "start", 0, -8);
      figure.points([...path(own).slice(1).map(([n, y]) => [fan.x(n), fan.y(y),
        `${words[last[n - 1]]}, ${D - n + 1} hidden: ${number(own[n - 1])}; sum ${number(y)}`]),
      ...S.map((value, m) => [bars.x(m + 1), bars.y(value), `${m + 1} hidden: S = ${number(value)}`])]);
      figure.say(say);
    };
  };

  Moving.kind("orders", { build });
})();
