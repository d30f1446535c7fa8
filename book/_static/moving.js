/* What all figures share that readers can move. No framework, no modules: the book also opens from a folder.
 *
 * mptlml_book.report.moving writes div.moving[data-kind] > .moving-still (a picture, for paper and where no
 * script runs), script[type="application/json"] (the numbers). moving-KIND.js calls Moving.kind(KIND, {build,
 * ...}), where build(figure, data) adds the controls and returns draw(), which is called after every change.
 */
const Moving = (() => {
  "use strict";
  const kinds = {};

  /* A number as text, with a true minus sign. */
  const number = (value, digits = 2, plus = false) => {
    const text = Math.abs(value).toFixed(digits);
    const sign = value < 0 && +text !== 0 ? "\u2212" : plus ? "+" : "";
    return sign + text;
  };
  /* The steps of a curve over sizes 1, 2, ...: each has width one, so that their area is the sum. */
  const steps = (values) => values.flatMap((value, k) => [[k + 0.5, value], [k + 1.5, value]]);
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const mean = (values) => sum(values) / values.length;
  const count = (length) => [...Array(length).keys()];
  /* The tokens that a mask hides: bit j of its code says that token j is hidden. */
  const bits = (code) => count(Math.ceil(Math.log2(code + 1))).filter((j) => code >> j & 1);
  /* S(1), ..., S(D): the mean over all masks of a size of a mask's own mean. */
  const curve = (answers, D) =>
    count(D).map((k) => mean(answers.filter((terms) => terms.length === k + 1).map(mean)));
  /* The score of each word as an order uncovers it, with D words hidden, ..., with one. */
  const drops = (answers, order) => order.map((j, k) => {
    const code = sum(order.slice(k).map((other) => 2 ** other));
    return answers[code][bits(code).indexOf(j)];
  });
  /* Where the lowest and the highest of all D! orders end. */
  const reach = (answers) => [Math.min, Math.max].map((most) => answers.reduce((ends, terms, code) =>
    [...ends, code && most(...bits(code).map((j, n) => terms[n] + ends[code - 2 ** j]))], []).at(-1));
  const shuffled = (values) => values.map((value) => [Math.random(), value]).sort(([a], [b]) => a - b).map(([, v]) => v);

  /* An arrow key, Home or End goes from one of `count` things to another. */
  const step = (event, at, count, go) => {
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -1e9, End: 1e9 }[event.key];
    if (!by) return;
    event.preventDefault();
    go(Math.max(0, Math.min(count - 1, at + by)));
  };

  /* An element with attributes and text, at the end of its parent. */
  const SVG = "http://www.w3.org/2000/svg";
  const add = (parent, tag, attributes = {}, text = null) => {
    const drawn = parent.namespaceURI === SVG || tag === "svg";
    const made = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== null) made.textContent = text;
    parent.append(made);
    return made;
  };

  /* About `wanted` round values between two ends. */
  const ticks = (low, high, wanted) => {
    const rough = (high - low) / wanted;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((nice) => nice * power >= rough * 0.999);
    const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
    return count(last - first + 1).map((k) => +((first + k) * step).toPrecision(12));
  };

  /* A pair of axes in an svg. `box`: left, top, width, height in pixels, labels included. */
  class Panel {
    constructor(svg, box, { x, y, xlabel = "", ylabel = "", xticks = null, yticks = null, left = 54 }) {
      const [right, bottom, top] = [18, xlabel ? 42 : 24, ylabel ? 24 : 8];
      this.left = box.left + left;
      this.right = box.left + box.width - right;
      this.top = box.top + top;
      this.bottom = box.top + box.height - bottom;
      this.x = (value) => this.left + (this.right - this.left) * (value - x[0]) / (x[1] - x[0]);
      const inside = (value) => Math.max(Math.min(...y), Math.min(Math.max(...y), value)); // else at the edge
      this.y = (value) => this.bottom - (this.bottom - this.top) * (inside(value) - y[0]) / (y[1] - y[0]);
      this.g = add(svg, "g");
      const told = (tick) => (Array.isArray(tick) ? tick : [tick, String(tick).replace("-", "\u2212")]);
      for (const [at, text] of (yticks || ticks(...y, Math.max(3, (this.bottom - this.top) / 45))).map(told)) {
        this.rule("y", at, "grid");
        this.words(this.left - 6, this.y(at) + 4, text, "end");
      }
      for (const [at, text] of (xticks || ticks(...x, Math.max(2, (this.right - this.left) / 70))).map(told)) {
        this.words(this.x(at), this.bottom + 17, text, "middle");
        add(this.g, "path", { class: "axis", d: `M${this.x(at)},${this.bottom}v4` });
      }
      add(this.g, "path", { class: "axis", d: `M${this.left},${this.top}V${this.bottom}H${this.right}` });
      if (xlabel) this.words((this.left + this.right) / 2, this.bottom + 36, xlabel, "middle");
      if (ylabel) this.words(box.left + 2, box.top + 13, ylabel, "start");
    }

    words(x, y, text, anchor = "start", style = "") {
      return add(this.g, "text", { x, y, "text-anchor": anchor, class: style }, text);
    }
    /* A name beside what it names, in its colour: at values of x and y, moved by dx and dy pixels. */
    name(x, y, text, style, anchor = "start", dx = 0, dy = -6) {
      return this.words(this.x(x) + dx, this.y(y) + dy, text, anchor, `name ${style}`);
    }

    /* A line across the panel at a value of x or of y. */
    rule(axis, value, style) {
      const up = `M${this.x(value)},${this.top}V${this.bottom}`;
      const along = `M${this.left},${this.y(value)}H${this.right}`;
      return add(this.g, "path", { class: style, d: axis === "x" ? up : along });
    }

    /* A line through points [[x, y], ...], and a dot. */
    line(points, style) {
      const d = points.map(([x, y]) => `${this.x(x).toFixed(1)},${this.y(y).toFixed(1)}`).join("L");
      return add(this.g, "path", { class: `line ${style}`, d: `M${d}` });
    }
    dot(x, y, style, r) { return add(this.g, "circle", { class: `dot ${style}`, cx: this.x(x), cy: this.y(y), r }); }

    /* A box between two values of x and two of y. */
    box(x0, x1, y0, y1, style) {
      const [a, b, c, d] = [this.x(x0), this.x(x1), this.y(y0), this.y(y1)];
      const corner = { x: Math.min(a, b), y: Math.min(c, d), width: Math.abs(b - a), height: Math.abs(d - c) };
      return add(this.g, "rect", { class: `area ${style}`, ...corner });
    }
  }

  /* One figure: its controls, its svg and its words. */
  class Figure {
    constructor(root) {
      this.root = root;
      this.live = add(root, "div", { class: "moving-live" });
      root.prepend(this.live); // above the caption
      this.controls = add(this.live, "div", { class: "moving-controls" });
      this.picture = add(this.live, "div", { class: "moving-picture" });
      this.tip = add(this.picture, "div", { class: "moving-tip", "aria-live": "polite" });
      this.readout = add(this.live, "div", { class: "moving-readout", "aria-live": "polite" });
      this.draw = () => {};
      this.listen();
    }

    /* Pointers read the nearest of `points`; arrow keys walk them. */
    listen() {
      const on = (type, act) => this.picture.addEventListener(type, act);
      on("pointermove", ({ clientX, clientY }) => {
        const box = this.svg.getBoundingClientRect();
        const scale = this.svg.viewBox.baseVal.width / box.width;
        const far = this.read.map(([x, y]) =>
          Math.hypot(x - (clientX - box.left) * scale, y - (clientY - box.top) * scale));
        this.show(far.findIndex((one) => one < 60 && one === Math.min(...far)));
      });
      for (const type of ["pointerleave", "blur"]) on(type, () => this.show(-1));
      on("focus", () => { if (this.picture.matches(":focus-visible")) this.show(0); });
      on("keydown", (event) => step(event, this.shown, this.read.length, (k) => this.show(k)));
    }

    /* Read off point k; none for -1. */
    show(k) {
      this.shown = k;
      if (this.ring) this.ring.remove();
      const [x, y, words] = this.read[k] || [0, 0, ""];
      if (this.tip.textContent !== words) this.tip.textContent = words;
      if (!words) return;
      const { width, height } = this.svg.viewBox.baseVal;
      this.ring = add(this.svg, "circle", { class: "ring", cx: x, cy: y, r: 7 });
      const [across, down] = [100 * x / width, 100 * y / height]; // above or below the point
      const shift = `translate(${-across}%, ${down > 50 ? "calc(-100% - 12px)" : "12px"})`;
      Object.assign(this.tip.style, { left: `${across}%`, top: `${down}%`, transform: shift });
    }

    /* What can be read: [x, y, words] each, in pixels of the svg. */
    points(points) {
      this.read = points;
      const name = this.picture.closest("figure")?.querySelector(".caption-number")?.textContent.trim() ?? "Chart";
      const how = { tabindex: 0, role: "group", "aria-label": `${name}: the arrow keys read its values` };
      for (const [name, value] of Object.entries(how)) this.picture.setAttribute(name, value);
      this.show(this.shown);
    }

    /* A slider; `text` says a value in words. Returns the input. */
    range(label, { min, max, value, text = String }) {
      const box = add(this.controls, "label", { class: "moving-range" });
      add(box, "span", {}, label);
      const input = add(box, "input", { type: "range", min, max, value });
      const shown = add(box, "output", { "aria-hidden": "true" }); // aria-valuetext says it
      input.say = () => {
        shown.textContent = text(+input.value);
        input.setAttribute("aria-valuetext", text(+input.value));
      };
      input.addEventListener("input", () => { input.say(); this.draw(); });
      input.say();
      return input;
    }

    /* A choice among names; its value is the place of the name. Returns the select. */
    select(label, names, chosen = 0) {
      const box = add(this.controls, "label");
      add(box, "span", {}, label);
      const select = add(box, "select");
      names.forEach((name, k) => { add(select, "option", { value: k }, name).selected = k === chosen; });
      select.addEventListener("change", () => this.draw());
      return select;
    }

    /* A button that acts at once, in the controls or elsewhere. */
    button(label, act, place = this.controls) {
      const button = add(place, "button", { type: "button" }, label);
      button.addEventListener("click", act);
      return button;
    }

    /* Words to press, some of them hidden, and a slider that hides and shows others at random: {group,
     * slider, hidden, choose, tell}. */
    masking(words, start) {
      const group = add(this.controls, "div",
        { class: "moving-words", role: "group", "aria-label": "Words: arrow keys, and Enter to hide or show" });
      const slider = this.range("Words hidden", { min: 0, max: words.length, value: start.length });
      const made = { group, slider, hidden: [...start] }; // the last one hidden is the first to come back
      made.choose = (chosen) => {
        [made.hidden, slider.value] = [[...chosen], chosen.length];
        slider.say();
        this.draw();
      };
      const cells = words.map((_, j) => {
        const cell = add(group, "div");
        const button = add(cell, "button", { type: "button", tabindex: j ? -1 : 0 });
        button.addEventListener("click", () => made.choose(
          made.hidden.includes(j) ? made.hidden.filter((other) => other !== j) : [...made.hidden, j]));
        return { button, note: add(cell, "div") };
      });
      const stop = (at) => cells.forEach(({ button }, j) => { button.tabIndex = j === at ? 0 : -1; });
      group.addEventListener("focusin", ({ target }) => stop(cells.findIndex(({ button }) => button === target)));
      group.addEventListener("keydown", (event) => { // Tab passes all words at once, arrow keys go among them
        const at = cells.findIndex(({ button }) => button.tabIndex === 0);
        step(event, at, cells.length, (next) => cells[next].button.focus());
      });
      slider.addEventListener("input", () => {
        const visible = shuffled(words.map((_, j) => j)).filter((j) => !made.hidden.includes(j));
        made.hidden = [...made.hidden, ...visible].slice(0, +slider.value);
      }, true); // before the figure is drawn
      /* The visible words, and below a hidden word j the lines(j): [text, per cent or none, if right]. */
      made.tell = (now, lines) => cells.forEach(({ button, note }, j) => {
        const masked = made.hidden.includes(j);
        button.textContent = masked ? "\u00a0" : now[j];
        if (masked) button.setAttribute("aria-label", `hidden word ${j + 1}`);
        else button.removeAttribute("aria-label");
        button.setAttribute("aria-pressed", masked);
        note.replaceChildren();
        for (const [text, chance, right] of masked ? lines(j) : []) {
          const bar = { class: `guess ${right ? "right" : ""}`, style: `--chance: ${chance}%` };
          add(note, "div", chance ? bar : {}, chance ? `${text} ${chance}%` : text);
        }
      });
      return made;
    }

    /* The width that the page allows; an empty svg of it, [svg, width], where `label` says what it shows. */
    get width() { return Math.max(260, Math.min(960, this.picture.clientWidth || 640)); }
    sheet(height, label) {
      const { width } = this;
      if (!this.svg) this.svg = add(this.picture, "svg", { role: "img", class: "moving-svg" });
      this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.svg.setAttribute("aria-label", label);
      this.svg.replaceChildren();
      this.read = [];
      return [this.svg, width];
    }

    /* The numbers in words, a line each. */
    say(lines) {
      this.readout.replaceChildren();
      for (const line of lines) add(this.readout, "div", {}, line);
    }
  }

  const start = (root, data) => {
    const figure = new Figure(root);
    root.classList.add("moving-alive");
    figure.draw = kinds[root.dataset.kind].build(figure, data);
    figure.draw();
    let width = figure.picture.clientWidth;
    new ResizeObserver(() => {
      const before = width;
      width = figure.picture.clientWidth || width;
      if (width !== before) figure.draw();
    }).observe(figure.picture);
  };
  /* A figure comes alive when it comes near: one of them computes for a second. */
  const load = (root) => new IntersectionObserver(([near], watch) => {
    if (!near.isIntersecting) return;
    watch.disconnect();
    start(root, JSON.parse(root.querySelector('script[type="application/json"]').textContent));
  }, { rootMargin: "800px" }).observe(root);

  if (typeof document !== "undefined") {
    document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("div.moving").forEach(load));
  }
  const kind = (name, parts) => { kinds[name] = parts; };
  return { kind, kinds, number, shuffled, steps, sum, mean, count, bits, curve, drops, reach, ticks, add, Panel };
})();
