"""A small masked language model: a pre-norm transformer that knows the distances of tokens, not their places.

Nothing makes its answers log p(x_j | x_R) the conditionals of one joint distribution.
"""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import gelu, layer_norm
from torch.nn.utils import skip_init

from mptlml.checks import check_choice, check_shapes, check_vocabulary
from mptlml.protocol import VocabularyModel

ROWS = 256  # in a forward pass, to keep memory small


class MaskedTransformer(nn.Module, VocabularyModel):
    """Tokens 0..V - 1, int64, in rows of D. The float32 weights are drawn from `generator`.

    In place of positions there is a learned bias for each head and distance. distance: how it
    starts. "near": the heads look one token back, one ahead, two back and so on, since a small
    network takes longest to learn to look nearby; "flat": all distances alike; "none": there is no
    bias, now or later, and the network reads a set, whose tokens have no order. The width is a
    multiple of the number of heads. Raises ValueError: another `distance`; the methods, an unknown
    token id.
    """

    def __init__(
        self,
        num_tokens: int,
        vocab_size: int,
        *,
        width: int = 48,
        num_layers: int = 3,
        num_heads: int = 4,
        distance: str = "near",
        generator: Generator,
    ) -> None:
        check_choice(distance, ("near", "flat", "none"), "distance")
        super().__init__()
        self.num_tokens, self.vocab_size = num_tokens, vocab_size
        # The last row of the embedding stands for a masked token.
        self.embedding = skip_init(nn.Embedding, vocab_size + 1, width)
        nn.init.normal_(self.embedding.weight, generator=generator)
        self.layers = nn.ModuleList(
            Layer(num_tokens, width, num_heads, distance, generator) for _ in range(num_layers)
        )
        self.readout = _linear(width, vocab_size, generator)

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j = v | x_R), nats per token [..., D, V], at observed tokens too."""
        check_shapes(x, observed, self.num_tokens)
        check_vocabulary(x, observed, self.vocab_size)
        return in_blocks(self, torch.nan_to_num(x).long(), observed, ROWS)

    def forward(self, ids: Tensor, seen: Tensor) -> Tensor:
        """Log-probabilities [n, D, V] for token ids [n, D], hidden where `seen` is False."""
        return self.readout(self.states(ids, seen)).log_softmax(-1)

    def states(self, ids: Tensor, seen: Tensor) -> Tensor:
        """What the readout sees, [n, D, width]: the last layer's states, normalised."""
        hidden = self.embedding(torch.where(seen, ids, self.vocab_size))  # [n, D, width]
        for layer in self.layers:
            hidden = layer(hidden)
        return _norm(hidden)


class Layer(nn.Module):
    """hidden + attention(norm(hidden)), then the same with a two-layer perceptron."""

    offset: Tensor

    def __init__(
        self, num_tokens: int, width: int, num_heads: int, distance: str, generator: Generator
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query_key_value = _linear(width, 3 * width, generator)
        self.mix = _linear(width, width, generator)
        self.up = _linear(width, 4 * width, generator)
        self.down = _linear(4 * width, width, generator)
        place, head = torch.arange(num_tokens), torch.arange(num_heads)
        target = (head // 2 + 1) * (2 * (head % 2) - 1)  # -1, 1, -2, 2, ...
        far = (torch.arange(1 - num_tokens, num_tokens) - target[:, None]).abs()
        start = -0.5 * far if distance == "near" else torch.zeros(far.shape)
        self.distance = nn.Parameter(start, requires_grad=distance != "none")  # [heads, 2 D - 1]
        # [D, D], an index into `distance`
        self.register_buffer("offset", place - place[:, None] + num_tokens - 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden [n, D, width] one layer on: [n, D, width]."""
        # [n, D, 3, heads, size]
        heads = self.query_key_value(_norm(hidden)).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        # [n, heads, D, D]
        weight = query @ key.mT / math.sqrt(query.shape[-1]) + self.distance[:, self.offset]
        hidden = hidden + self.mix((weight.softmax(-1) @ value).transpose(1, 2).flatten(-2))
        return hidden + self.down(gelu(self.up(_norm(hidden))))


def _norm(hidden: Tensor) -> Tensor:
    return layer_norm(hidden, hidden.shape[-1:])


def _linear(num_in: int, num_out: int, generator: Generator) -> nn.Linear:
    """A linear map with weights N(0, 1 / num_in) and biases 0, which are learnt too."""
    linear = skip_init(nn.Linear, num_in, num_out)
    nn.init.normal_(linear.weight, std=num_in**-0.5, generator=generator)
    nn.init.zeros_(linear.bias)
    return linear


def in_blocks(
    answer: Callable[[Tensor, Tensor], Tensor], x: Tensor, observed: Tensor, size: int
) -> Tensor:
    """answer(x [n, D], observed [n, D]) of at most `size` rows at once: [..., D] or more, for both broadcast."""
    both = torch.broadcast_tensors(x, observed)
    blocks = zip(*(part.reshape(-1, part.shape[-1]).split(size) for part in both), strict=True)
    found = torch.cat([answer(*block) for block in blocks])
    return found.reshape(*both[0].shape, *found.shape[2:])
