"""What two networks guess of one sentence, for the moving figure of the kind "guesses"."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Generator, Tensor

from mptlml.checks import Sizes, check_sizes
from mptlml.masks import random_orders
from mptlml.protocol import VocabularyModel


def guesses(networks: Mapping[str, VocabularyModel], row: Tensor, vocabulary: Sequence[str], sizes: Sizes, *,
            generator: Generator) -> dict[str, Any]:
    """Data for `moving("guesses", ...)`: what two networks guess of one row, the more of it is hidden.

    networks: {short name: network}; the figure says by how much the second's hidden tokens score above the
    first's. row [D]: token ids; vocabulary: the V words; sizes: how many tokens each step of the slider
    hides, along one order that is drawn from the generator. Three guesses are kept for each token. Raises
    ValueError: not two networks, a vocabulary that is not theirs, a size not in 1..D.
    """
    sizes, of = check_sizes(sizes, len(row)), [net.vocab_size for net in networks.values()]
    if of != 2 * [len(vocabulary)]:
        raise ValueError(f"two networks with {len(vocabulary)} words, the vocabulary's, are compared, got {of}")
    observed = random_orders(len(row), 1, generator=generator).argsort(-1) >= sizes[:, None]  # [steps, D]
    rows = row.expand(observed.shape)
    with torch.no_grad():
        each = [net.vocabulary_log_prob(rows, observed) for net in networks.values()]  # [steps, D, V]
    answers = torch.stack(each)
    best = answers.topk(3)
    scores = answers.gather(-1, rows.long().expand(2, -1, -1)[..., None])[..., 0]
    return {"unit": "word", "vocabulary": vocabulary, "names": list(networks), "row": row.long(), "steps": [
        {"hidden": (~seen).nonzero()[:, 0], "guesses": best.indices[:, k, ~seen],
         "chances": best.values[:, k, ~seen].exp(), "scores": scores[:, k, ~seen]}
        for k, seen in enumerate(observed)]}


def still(data: Mapping[str, Any], colours: tuple[str, str, str], at: int = -2, across: int = 33) -> Figure:
    """One step of the data of `guesses` as a picture, `across` tokens a line: what the moving figure opens on.

    colours: of a right guess, which has a frame too, of a wrong one, and of what is hidden; the paler, the less sure.
    """
    blue, orange, grey = colours
    words, row, step = data["vocabulary"], data["row"], data["steps"][at]
    place = {int(j): k for k, j in enumerate(step["hidden"])}
    fig, ax = plt.subplots(figsize=(7, 0.3 * (4 * -(-len(row) // across) - 1)))
    ax.set(xlim=(-5, across), ylim=(4 * -(-len(row) // across) - 1.4, -0.6))
    ax.axis("off")
    for j, true in enumerate(row):
        x, y = j % across, 4 * (j // across)
        ax.text(x, y, words[true], ha="center", va="center", color=grey if j in place else "black")
        for n, name in enumerate(data["names"], 1):
            if x == 0:
                ax.text(-1, y + n, name, ha="right", va="center", color=grey)
            if j in place:
                guess, chance = (np.asarray(step[key][n - 1][place[j]])[0] for key in ("guesses", "chances"))
                right, corner = guess == true, (x - 0.44, y + n - 0.44)
                color = blue if right else orange
                ax.add_patch(plt.Rectangle(corner, 0.88, 0.88, color=color, alpha=0.1 + 0.5 * chance, linewidth=0))
                ax.add_patch(plt.Rectangle(corner, 0.88, 0.88, fill=False, color=color, linewidth=0.8 * right))
                ax.text(x, y + n, words[guess], ha="center", va="center")
    return fig
