/* Paint over the pixels of a digit: the model's conditional probabilities fill them in, and its belief about z widens.
 * data: side; weight [D][2] and bias [D] of a linear Bernoulli VAE; spacing and radius of its grid of nodes z; images
 * [N], each a text of D zeros and ones; names [N]; hidden, the number of pixels hidden at first. */
(() => {
  "use strict";
  const { number, sum } = Moving;
  const softplus = (value) => Math.max(value, 0) + Math.log1p(Math.exp(-Math.abs(value)));
  const dot = (a, b) => a.reduce((total, value, k) => total + value * b[k], 0);

  /* The nodes z of a grid inside a disc: the logarithm of each one's weight (the weights sum to 1), and for each pixel
   * its logit eta, the probabilities of white and of black, and the logarithm that normalises them. */
  const grid = ({ weight, bias, spacing, radius }) => {
    const half = Math.ceil(radius / spacing);
    const axis = [...Array(2 * half + 1).keys()].map((k) => spacing * (k - half));
    const nodes = axis.flatMap((a) => axis.map((b) => [a, b])).filter((z) => dot(z, z) <= radius ** 2);
    const total = Math.log(sum(nodes.map((z) => Math.exp(-dot(z, z) / 2))));
    return nodes.map((z) => {
      const eta = weight.map((w, j) => dot(w, z) + bias[j]);
      const [white, black] = [1, -1].map((sign) => eta.map((value) => 1 / (1 + Math.exp(-sign * value))));
      return { z, prior: -dot(z, z) / 2 - total, eta, white, black, norm: eta.map(softplus) };
    });
  };

  /* Given the visible pixels of x: the share of each node, p(x_j = 1 | x_R), and log p(x_j | x_R) of hidden pixels. */
  const answer = (nodes, x, hidden) => {
    const fits = nodes.map(({ prior, eta, norm }) =>
      prior + sum(x.map((value, j) => (hidden[j] ? 0 : value * eta[j] - norm[j]))));
    const top = Math.max(...fits);
    const weights = fits.map((fit) => Math.exp(fit - top));
    const total = sum(weights);
    const shares = weights.map((weight) => weight / total);
    const chance = (colour, j) => sum(nodes.map((node, q) => shares[q] * node[colour][j]));
    const scores = x.map((value, j) => (hidden[j] ? Math.log(chance(value ? "white" : "black", j)) : 0));
    return { shares, white: x.map((_, j) => chance("white", j)), scores };
  };

  const build = (figure, data) => {
    const { side, spacing, bias: { length: D } } = data;
    const nodes = grid(data);
    const images = data.images.map((text) => [...text].map(Number));
    const which = figure.choice("Digit", data.names);
    const count = figure.range("Pixels hidden, from the bottom", { min: 0, max: D, value: data.hidden });
    let [hidden, at, brush, slid, chosen] = [[], null, true, null, 0]; // at: the node at which a reader looks
    const set = (j, value) => {
      [hidden[j], at] = [value, null];
      slid = sum(hidden.map(Number));
      count.value = slid;
      count.say();
      figure.draw();
    };
    const look = (node) => { at = node; figure.draw(); };

    return () => {
      if (slid !== +count.value) { // the slider has moved
        [slid, at] = [+count.value, null];
        hidden = images[0].map((_, j) => j >= D - slid);
      }
      if (chosen !== which.value) [chosen, at] = [which.value, null];
      const x = images[chosen];
      const { shares, white, scores } = answer(nodes, x, hidden);
      const mean = number(sum(scores) / slid, 3);
      const say = slid ? `A hidden pixel scores ${mean} nats on average.` : "Nothing is hidden yet.";
      const narrow = figure.picture.clientWidth < 560;
      const what = "A digit whose hidden pixels show their probability of white, and the belief about z in the plane.";
      const [svg, width] = figure.sheet(narrow ? 600 : 310, `${what} ${say}`);
      const place = (first) => ({ left: narrow ? width / 2 - 147 : width / 2 + (first ? -300 : 5),
        top: narrow && !first ? 300 : 0, width: 290, height: 300 });
      const digit = new Moving.Panel(svg, place(true), { x: [0, side], y: [side, 0], xticks: [], yticks: [], left: 22,
        ylabel: at ? "what this z would draw" : "paint over pixels to hide them" });
      const plane = new Moving.Panel(svg, place(false), { x: [-3.5, 3.5], y: [-3.5, 3.5], xticks: [-2, 0, 2],
        yticks: [-2, 0, 2], left: 22, ylabel: "belief about z: press to draw from there" });
      const corner = (j) => [j % side, Math.floor(j / side)];
      x.forEach((value, j) => {
        const [column, row] = corner(j);
        const light = Math.round(255 * (at ? at.white[j] : hidden[j] ? white[j] : value));
        const [style, pad] = at || !hidden[j] ? ["pixel", 0] : ["pixel hole", 0.06];
        const pixel = digit.box(column + pad, column + 1 - pad, row + pad, row + 1 - pad, style);
        pixel.style.fill = `rgb(${light}, ${light}, ${light})`;
      });
      const top = Math.max(...shares);
      nodes.forEach(({ z: [a, b] }, q) => {
        if (shares[q] < 1e-3 * top || Math.max(Math.abs(a), Math.abs(b)) > 3.4) return;
        const cell = plane.box(a - spacing / 2, a + spacing / 2, b - spacing / 2, b + spacing / 2, "blue");
        cell.style.opacity = Math.sqrt(shares[q] / top);
      });
      if (at) plane.dot(...at.z, "orange grip", 7);
      const middle = (j) => corner(j).map((c, k) => (k ? digit.y(c + 0.5) : digit.x(c + 0.5)));
      const node = (x, y) =>
        nodes[figure.nearest(({ z: [a, b] }) => Math.hypot(plane.x(a) - x, plane.y(b) - y), 99, nodes)];
      figure.drag(digit, (x, y, first) => {
        const j = figure.nearest(([a, b]) => Math.hypot(a - x, b - y), 99);
        if (first) brush = !hidden[j];
        if (j in hidden) set(j, brush);
      }, "paint");
      figure.drag(plane, (x, y) => look(node(x, y) || at), "paint");
      const lattice = [-3, -2, -1, 0, 1, 2, 3].flatMap((b) => [-3, -2, -1, 0, 1, 2, 3].map((a) => [a, -b]));
      figure.points([...x.map((value, j) => [...middle(j), hidden[j]
        ? `hidden: white with probability ${number(white[j], 3)}` : `visible: ${value ? "white" : "black"}`,
      () => set(j, !hidden[j])]), ...lattice.map((z) => [plane.x(z[0]), plane.y(z[1]),
        `z = (${z.map((part) => number(part, 0)).join(", ")})`, () => look(node(plane.x(z[0]), plane.y(z[1])))])]);
      figure.say([say]);
    };
  };

  Moving.kind("latent", { build, grid, answer });
})();
