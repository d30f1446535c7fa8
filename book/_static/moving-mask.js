/* Hide words of a sentence and guess one: what the model guesses there, its score, and how the steps of the curve
 * fill the area, which is log p(x).
 * data: words [D]; of the mask whose bit j says that token j is hidden: answers [2^D], log p of each hidden token in
 * order, guesses [2^D], the most probable words, chances [2^D], per cent, joint [2^D], log p(x_M | x_R);
 * vocabulary: the words that guesses names; hidden: the tokens hidden at first. */
(() => {
  "use strict";
  const { number, sum, mean, count, bits, add } = Moving;

  const build = (figure, data) => {
    const { words, answers } = data;
    const D = words.length;
    const S = Moving.curve(answers, D);
    const masking = figure.masking(words, data.hidden);
    const answer = add(figure.controls, "div", { class: "moving-row", role: "group", "aria-label": "Your guess" });
    const reply = add(figure.controls, "div", { class: "moving-row", "aria-live": "polite" });
    let [told, guess] = [0, ""]; // the mask whose guesses are shown
    let [asks, yours, models] = [0, 0, 0]; // how many guesses, and how many of them were right
    const press = (label, act) => figure.button(label, () => {
      act();
      answer.querySelector("button")?.focus();
    }, answer);
    const more = () => masking.choose([...masking.hidden,
      Moving.shuffled(count(D)).find((j) => !masking.hidden.includes(j))]);

    return () => {
      const { hidden } = masking;
      const [size, code, asked] = [hidden.length, sum(hidden.map((j) => 2 ** j)), hidden.at(-1)];
      const [terms, open] = [answers[code], told === code];
      const of = (what, j) => what[code][bits(code).indexOf(j)];
      const best = (j) => of(data.guesses, j).map((word, k) =>
        [data.vocabulary[word], of(data.chances, j)[k]]).filter(([, chance]) => chance);
      masking.tell(words, (j) => (open ? [[`${words[j]}: ${number(of(answers, j))}`],
        ...best(j).map(([word, chance]) => [word, chance, word === words[j]])] : j === asked ? [["?"]] : []));
      answer.replaceChildren();
      if (size && !open) {
        answer.append("Which word is at the question mark?");
        for (const word of [...new Set([...best(asked).map(([word]) => word), words[asked]])].sort()) {
          press(word, () => {
            [told, guess] = [code, word];
            asks += 1;
            yours += word === words[asked];
            models += best(asked)[0][0] === words[asked];
            figure.draw();
          });
        }
      } else if (size < D) press(size ? "Hide one more" : "Hide a word", more);
      else press("Start again", () => masking.choose(data.hidden));

      const score = size && of(answers, asked);
      const tally = asks < 5 ? "" : ` Of ${asks} words you found ${yours}, the model's best guess ${models}.`;
      const right = open && size ? `${guess === words[asked] ? "Right" : "No"}: it was ${words[asked]}. The model gave it ${
        Math.round(100 * Math.exp(score))}%, a score of log ${Math.exp(score).toFixed(2)} = ${number(score)}.${tally}` : "";
      if (reply.textContent !== right) reply.textContent = right;
      const say = !(open && size) ? [`${size} of ${D} words hidden.`]
        : size < D ? [size > 1 ? `The hidden words: ${number(sum(terms))} nats one by one, ${number(data.joint[code])} jointly.` : "",
          `The steps so far: ${number(sum(S.slice(0, size)))} of log p(x) = ${number(sum(S))}.`].filter(Boolean)
          : [`The mean scores of all sizes add up: ${S.map((value) => number(value)).join(" ")} = ${
            number(sum(S))} = log p(x), the log-probability of the sentence.`];
      const [svg, width] = figure.sheet(200, `Steps that fall, of which ${size} are filled. ${right} ${say.join(" ")}`);
      const panel = new Moving.Panel(svg, { left: 0, top: 0, width, height: 200 },
        { x: [0.4, D + 0.6], y: [-2.2, 0], xlabel: "words hidden, m", ylabel: "mean score of a hidden word, nats",
          xticks: S.map((_, k) => k + 1), left: 42 });
      S.forEach((value, k) => panel.box(k + 0.5, k + 1.5, value, 0, `blue step ${k < size ? "" : "faint"}`));
      panel.line(Moving.steps(S), "blue");
      if (open && size) {
        panel.dot(size, mean(terms), "orange", 7);
        panel.name(size, mean(terms), "here", "orange", "middle", 0, 20);
      }
      figure.points(S.map((value, k) => [panel.x(k + 1), panel.y(value), `${k + 1} hidden: S = ${number(value)}`]));
      figure.say(say);
    };
  };

  Moving.kind("mask", { build });
})();
