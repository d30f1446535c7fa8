"""What two networks guess of one sentence, for the moving figure of the kind "guesses"."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from mptlml.checks import Sizes, check_sizes
from mptlml.masks import random_orders
from mptlml.protocol import VocabularyModel


def guesses(networks: Mapping[str, VocabularyModel], row: Tensor, vocabulary: Sequence[str], sizes: Sizes, *,
            generator: Generator) -> dict[str, Any]:
    """Data for `moving("guesses", ...)`: what two networks guess of one row, the more of it is hidden.

    networks: {short name: network}; the figure says by how much the second's hidden tokens score above the first's.
    row [D]: token ids; vocabulary: the V words; sizes: how many tokens each step of the slider hides, along one order
    that is drawn from the generator. Three guesses are kept for each token. Raises ValueError: not two networks, a
    vocabulary that is not theirs, a size not in 1..D.
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
