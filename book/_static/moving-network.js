/* Write a sentence of the known language and hide words: two networks run beside the exact answers.
 * data: words [V]; row [D], places in words; hidden: the places hidden at first; language {initial,
 * transition, emission}, the hidden Markov model; networks [{name, shapes, weights}], as packed by
 * mptlml_book.known_language.eight_bits; of the first sentence, masks, how many
 * of each size the page begins with, and steps [3][D], their curves. Nats. */
(() => {
  "use strict";
  const { number, sum, mean, count, add } = Moving;

  /* The weights by name, each a list of rows: whole multiples, 8 bits each, of a unit that stands before them. */
  const decode = ({ shapes, weights }) => {
    const whole = Int8Array.from(atob(weights), (letter) => letter.charCodeAt());
    let at = 0;
    const read = (columns, most) => {
      const unit = most * whole[at] / 127 ** 2;
      return Float64Array.from(whole.subarray(at + 1, at += 1 + columns), (w) => unit * w);
    };
    return Object.fromEntries(Object.entries(shapes).map(
      ([name, [rows, columns, most]]) => [name, count(rows).map(() => read(columns, most))]));
  };

  const dot = (a, b) => {
    let total = 0;
    for (let k = 0; k < a.length; k += 1) total += a[k] * b[k];
    return total;
  };
  const softmax = (values) => {
    const most = Math.max(...values);
    const raised = values.map((value) => Math.exp(value - most));
    const total = sum(raised);
    return raised.map((value) => value / total);
  };
  const norm = (v) => {
    const middle = mean(v);
    const scale = 1 / Math.sqrt(dot(v, v) / v.length - middle * middle + 1e-5);
    return v.map((value) => (value - middle) * scale);
  };
  /* x times the normal distribution function, by 7.1.26 of Abramowitz and Stegun: off by 1e-7 at most. */
  const gelu = (x) => {
    const t = 1 / (1 + 0.3275911 * Math.abs(x) / Math.SQRT2);
    const powers = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
    const tail = powers.reduce((total, factor) => (total + factor) * t, 0) * Math.exp(-x * x / 2) / 2;
    return x * (x < 0 ? tail : 1 - tail);
  };

  /* What a network answers: log p(x_j = v | x_R) [D][V], as mptlml_book.transformer computes it. */
  const forward = (net, row, seen) => {
    const linear = (name) => {
      const [matrix, [shift]] = [net[`${name}.weight`], net[`${name}.bias`]];
      return (v) => shift.map((start, k) => start + dot(matrix[k], v));
    };
    const plus = (one, other) => one.map((v, j) => v.map((value, k) => value + other[j][k]));
    const embedding = net["embedding.weight"];
    let hidden = row.map((word, j) => Float64Array.from(embedding[seen[j] ? word : embedding.length - 1]));
    for (let layer = 0; net[`layers.${layer}.distance`]; layer += 1) {
      const part = (name) => linear(`layers.${layer}.${name}`);
      const [distance, width] = [net[`layers.${layer}.distance`], hidden[0].length];
      const [all, size] = [hidden.map(norm).map(part("query_key_value")), width / distance.length];
      const mixed = hidden.map(() => new Float64Array(width));
      distance.forEach((far, head) => {
        const [query, key, value] = [0, 1, 2].map((which) =>
          all.map((v) => v.subarray(which * width + head * size, which * width + (head + 1) * size)));
        query.forEach((asked, i) => {
          const bias = (j) => far[j - i + (far.length - 1) / 2];
          const weights = softmax(key.map((told, j) => dot(asked, told) / Math.sqrt(size) + bias(j)));
          for (let k = 0; k < size; k += 1) mixed[i][head * size + k] = sum(weights.map((w, j) => w * value[j][k]));
        });
      });
      hidden = plus(hidden, mixed.map(part("mix")));
      hidden = plus(hidden, hidden.map(norm).map(part("up")).map((v) => v.map(gelu)).map(part("down")));
    }
    return hidden.map(norm).map(linear("readout")).map((v) => softmax(v).map(Math.log));
  };

  /* The exact {answers [D][V], logProb: log p(x_R)}, by a pass forward and one back over the states. */
  const exact = ({ initial, transition, emission }, row, seen) => {
    const factor = (j, z) => (seen[j] ? emission[z][row[j]] : 1);
    let [now, logProb, after] = [initial, 0, initial.map(() => 1)];
    const before = row.map((_, j) => {
      const [here, joint] = [now, now.map((p, z) => p * factor(j, z))];
      logProb += Math.log(sum(joint));
      now = initial.map((_, to) => sum(joint.map((p, z) => p * transition[z][to])) / sum(joint));
      return here;
    });
    const answers = before.map((_, back) => {
      const j = row.length - 1 - back;
      const state = before[j].map((p, z) => p * after[z]); // of all other visible words
      const later = after.map((p, z) => p * factor(j, z));
      const from = transition.map((to) => dot(to, later));
      after = from.map((p) => p / sum(from));
      return emission[0].map((_, v) => Math.log(sum(state.map((p, z) => p * emission[z][v])) / sum(state)));
    });
    return { answers: answers.reverse(), logProb };
  };

  /* The language goes on from the first words, to D words. */
  const finish = (language, row, D) => {
    if (row.length >= D) return row.slice(0, D);
    const { answers } = exact(language, [...row, 0], row.map(() => true));
    let rest = Math.random();
    const word = answers.at(-1).findIndex((value) => (rest -= Math.exp(value)) < 0);
    return finish(language, [...row, Math.max(0, word)], D);
  };

  const build = (figure, data) => {
    const { words, language } = data;
    const [D, places] = [data.row.length, count(data.row.length)];
    const [names, colours] = [[...data.networks.map(({ name }) => name), "exact"], ["blue", "green", "black"]];
    const nets = data.networks.map(decode);
    let [row, drops, sizes] = [data.row, [], []];
    const which = figure.select("Network trained at", names.slice(0, 2), 1);
    const field = add(add(figure.controls, "label", { class: "moving-sentence" }, "Sentence"), "textarea", { rows: 3 });
    const masking = figure.masking(data.row, data.hidden);

    /* What networks and language answer where `hidden` is hidden: answers [3][D][V], scores [3]. */
    const judge = (hidden) => {
      const seen = places.map((j) => !hidden.includes(j));
      const answers = [...nets.map((net) => forward(net, row, seen)), exact(language, row, seen).answers];
      return { hidden, answers, scores: answers.map((answer) => mean(hidden.map((j) => answer[j][row[j]]))) };
    };
    const given = () => (row === data.row ? data.masks : 0); // masks of each size, before the page opened
    /* The steps S(1), ..., S(D) [3][D], each the mean of its masks so far; NaN where there are none. */
    const curves = () => {
      const sorted = places.map((k) => drops.filter(({ hidden }) => hidden.length === k + 1));
      return names.map((_, n) => sorted.map((some, k) =>
        (given() * data.steps[n][k] + sum(some.map(({ scores }) => scores[n]))) / (given() + some.length)));
    };
    /* Some more random masks, one of each size in turn. */
    const pour = (masks) => {
      for (let k = 0; k < masks; k += 1) {
        if (!sizes.length) sizes = Moving.shuffled(places);
        const { hidden, scores } = judge(Moving.shuffled(places).slice(0, sizes.pop() + 1));
        drops.push({ hidden, scores });
      }
      figure.draw();
    };
    let unknown = [];
    const write = (sentence, others = []) => {
      unknown = others;
      [row, drops, sizes] = [finish(language, sentence, D), [], []];
      field.value = row.map((word) => words[word]).join(" ");
      pour(2 * D);
    };
    field.addEventListener("change", () => {
      const written = field.value.toLowerCase().match(/[a-z]+/g) ?? [];
      write(written.map((word) => words.indexOf(word)).filter((word) => word >= 0),
        written.filter((word) => !words.includes(word)));
    });
    field.addEventListener("keydown", ({ key }) => { if (key === "Enter") field.blur(); });
    figure.button(`Add ${2 * D} masks`, () => pour(2 * D));
    figure.button("Another sentence", () => write([]));
    add(figure.controls, "em", {}, "Below a hidden word: the network\u2019s best guess, then the exact; bold is right.");
    figure.live.append(masking.group); // below the chart, and last for the keyboard
    field.value = row.map((word) => words[word]).join(" ");

    return () => {
      const [{ hidden }, own] = [masking, +which.value];
      const { answers, scores } = judge(hidden);
      masking.tell(row.map((word) => words[word]), (j) => [own, 2].map((n) => {
        const most = Math.max(...answers[n][j]);
        const best = answers[n][j].indexOf(most);
        return [words[best], Math.round(100 * Math.exp(most)), best === row[j]];
      }));

      const [S, { logProb }] = [curves(), exact(language, row, places.map(() => true))];
      const told = (values) => values.map((value, n) => `${number(value)} (${names[n]})`).join(", ");
      const say = [hidden.length ? `A hidden word scores ${told(scores)} nats.` : "Press a word to hide it.",
        `The exact log p(x) is ${number(logProb)} nats; the area after ${drops.length + given() * D} masks: ${told(S.map(sum))}.`];
      if (unknown.length) say.unshift(`Not in the language, and left out: ${unknown.join(", ")}.`);
      const [svg, width] = figure.sheet(240, `Steps by mask size. ${say.join(" ")}`);
      const lowest = Math.min(-3.6, ...S.flat().map((value) => 1.1 * value || 0));
      const panel = new Moving.Panel(svg, { left: 0, top: 0, width, height: 240 },
        { x: [0.4, D + 0.6], y: [lowest, 0], xlabel: "words hidden, m", ylabel: "log-probability of a word, nats" });
      drops.forEach((drop, k) => panel.dot(drop.hidden.length + 0.6 * (k * 0.618 % 1 - 0.5), drop.scores[own], "grey half", 2));
      names.forEach((name, n) => {
        if (n === own) S[n].forEach((value, k) => panel.box(k + 0.5, k + 1.5, value || 0, 0, `${colours[n]} step`));
        panel.line(Moving.steps(S[n]).filter(([, y]) => y < 0), colours[n]);
        panel.name(5, lowest, name, colours[n], "start", 0, [-26, -10, -42][n]);
      });
      if (hidden.length) {
        panel.dot(hidden.length, scores[own], "orange", 8);
        panel.name(hidden.length, scores[own], "this mask", "orange", "end", -12, 5);
      }
      figure.points(places.filter((k) => S[own][k] < 0).map((k) =>
        [panel.x(k + 1), panel.y(S[own][k]), `${k + 1} hidden: ${told(S.map((values) => values[k]))}`]));
      figure.say(say);
    };
  };

  Moving.kind("network", { build, decode, forward, exact });
})();
