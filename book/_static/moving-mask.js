/* Hide words of a sentence: what a model guesses in their place, where the mask lies among all masks,
 * and how the steps of the curve fill the area, which is log p(x).
 * data: words [D]; of the mask whose bit j says that token j is hidden: answers [2^D], log p of each hidden token in
 * order, guesses [2^D], the most probable words, chances [2^D], per cent, joint [2^D], log p(x_M | x_R);
 * vocabulary: the words that guesses names; hidden: the tokens hidden at first. */
(() => {
  "use strict";
  const { number, sum, mean, count } = Moving;

  /* S(1), ..., S(D): the mean over all masks of a size of a mask's own mean. */
  const curve = (answers, D) =>
    count(D).map((k) => mean(answers.filter((terms) => terms.length === k + 1).map(mean)));

  const build = (figure, data) => {
    const D = data.words.length;
    const S = curve(data.answers, D);
    const lml = data.joint[2 ** D - 1];
    const bits = (code) => data.words.map((_, j) => j).filter((j) => code >> j & 1);
    // Masks of a size stand side by side, in no order, so that each can be seen.
    const masks = data.answers.map((terms, code) =>
      ({ code, x: terms.length + 0.6 * (code * 0.618 % 1 - 0.5), y: mean(terms) })).slice(1);
    masks.sort((a, b) => a.x - b.x);
    const lowest = Math.min(...masks.map(({ y }) => y)) * 1.05;
    const masking = figure.masking(data.words, data.hidden);
    figure.repeat("Play", () => {
      const { slider } = masking;
      slider.value = slider.value === slider.max ? 0 : +slider.value + 1;
      slider.dispatchEvent(new Event("input"));
      return slider.value === slider.max;
    }, 1100);
    let fall = "drop";

    return () => {
      const { hidden } = masking;
      const [size, code] = [hidden.length, sum(hidden.map((j) => 2 ** j))];
      const terms = data.answers[code];
      masking.tell(data.words, (j) => {
        const place = bits(code).indexOf(j);
        return [[number(terms[place])], ...data.guesses[code][place].map((guess, k) =>
          [data.vocabulary[guess], data.chances[code][place][k], data.vocabulary[guess] === data.words[j]])
          .filter(([, chance]) => chance)];
      });

      const filled = sum(S.slice(0, size));
      const share = `${Math.round(100 * filled / lml)}%`;
      const say = !size ? ["Nothing is hidden: press a word."] : [
        size === 1 ? `The hidden word has the log-probability ${number(terms[0])}.`
          : `The ${size} hidden words, one by one, sum to ${number(sum(terms))}; jointly: ${number(data.joint[code])}.`,
        size < D ? `With ${size} of ${D} words hidden, the steps so far fill ${share} of log p(x).`
          : `All ${D} steps together have the area ${number(sum(S))}, and log p(x) is ${number(lml)}.`];
      const [svg, width] = figure.sheet(302, `Steps that fall, and a dot for each mask. ${say.join(" ")}`);
      const panel = new Moving.Panel(svg, { left: 0, top: 0, width, height: 232 },
        { x: [0.4, D + 0.6], y: [lowest, 0], xlabel: "words hidden, m", ylabel: "log-probability of a word, nats",
          xticks: S.map((_, k) => k + 1), left: 42 });
      const meter = new Moving.Panel(svg, { left: 0, top: 246, width, height: 56 },
        { x: [0, lml], y: [0, 1], yticks: [], xticks: [[0, "0"]], left: 42 });
      S.forEach((value, k) => {
        const style = `blue step ${k < size ? "" : "faint"}`;
        panel.box(k + 0.5, k + 1.5, value, 0, style);
        meter.box(sum(S.slice(0, k)), sum(S.slice(0, k + 1)), 0, 1, style);
      });
      panel.line(Moving.steps(S), "blue");
      masks.forEach(({ x, y }) => panel.dot(x, y, "grey half", 2.5));
      panel.words(panel.x(0.55) + 4, panel.y(0) + 18, "a step: the mean of its masks, S(x; m)");
      panel.name(0.55, lowest, "a dot: one mask", "grey");
      const [side, away] = size > D / 2 ? ["end", -1] : ["start", 1];
      meter.name(filled, 0, share, "blue", side, 6 * away);
      meter.name(lml, 0, `all steps: log p(x) = ${number(lml)}`, "black", "end", 0, 18);
      masks.filter((mask) => mask.code === code).forEach(({ x, y }) => {
        panel.dot(x, y, `orange grip ${fall}`, 8);
        panel.name(x, y, "your mask: drag it", "orange", side, 12 * away, 4);
      });
      figure.drag(panel, (x, y) => {
        const far = (mask) => Math.hypot(panel.x(mask.x) - x, panel.y(mask.y) - y);
        fall = "";
        masking.choose(bits(masks[figure.nearest(far, Infinity, masks)].code));
        fall = "drop";
      });
      figure.points(masks.map((mask) => [panel.x(mask.x), panel.y(mask.y),
        `${bits(mask.code).map((j) => data.words[j]).join(", ")}: ${number(mask.y)}`]));
      figure.say(say);
    };
  };

  Moving.kind("mask", { build, curve });
})();
