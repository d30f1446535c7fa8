"""What two networks guess of one sentence, the more of it is hidden."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from IPython.display import HTML
from torch import Generator, Tensor

from mptlml.checks import Sizes, check_sizes
from mptlml.masks import random_orders
from mptlml.protocol import VocabularyModel


def guesses(networks: Mapping[str, VocabularyModel], row: Tensor, vocabulary: Sequence[str], sizes: Sizes, *,
            generator: Generator) -> dict[str, Any]:
    """What two networks guess of one row, the more of it is hidden.

    networks: {short name: network}. row [D]: token ids; vocabulary: the V words; sizes: how many tokens each
    step hides, along one order that is drawn from the generator. Three guesses are kept for each token.
    Raises ValueError: not two networks, a vocabulary that is not theirs, a size not in 1..D.
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


def letters(gene: str, said: Mapping[str, Mapping[int, tuple[str, float]]]) -> HTML:
    """What networks guess of a gene, as columns of letters: the residue, grey where hidden, and below it each guess.

    said: {name: {place, from 1: (guess, its probability)}}. A right guess is blue and underlined, a wrong one
    orange; the paler, the less sure.
    """
    columns = ["<br>".join(["gene", *said])]
    for place, residue in enumerate(gene, 1):
        hidden = any(place in guessed for guessed in said.values())
        lines = [f'<span style="opacity: .65">\u00a0{residue}</span>' if hidden else f"<b>\u00a0{residue}\u00a0</b>"]
        for guess, chance in [guessed.get(place, ("", 0.0)) for guessed in said.values()]:
            tag, colour = ("u", "0072b2") if guess == residue else ("span", "e69f00")
            shade = f"background: #{colour}{round(255 * (0.1 + 0.35 * chance)):02x}"
            lines.append(f'<{tag} style="{shade}">\u00a0{guess}\u00a0</{tag}>' if guess else "")
        columns.append("<br>".join(lines))
    style = "display: inline-block; vertical-align: top; margin: 0 1px .7em"
    blocks = "".join(f'<span style="{style}">{column}</span>' for column in columns)
    return HTML(f'<div style="font-family: monospace; line-height: 1.5; text-align: left">{blocks}</div>')
