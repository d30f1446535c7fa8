"""Observations in place of words: a row is a data set, and the area under a network's curve is log evidence.

A data set is N yes-or-no observations drawn from a Bayesian model, whose parameters are drawn anew
for each data set. A network that learns to predict hidden observations from visible ones learns the
model's posterior predictive probabilities, and by the chain rule its area is the log evidence of
the model.

Two families have exact answers. Coins: p(x) is a ratio of Beta functions. Logistic regression of
degree d on N fixed points: the prior is replaced by 2^13 points that fill it evenly, and their
mixture is a model of the library, with which the integral by other means agrees to 0.02 nats
(tests/test_evidence.py).
"""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from numpy.polynomial.legendre import legvander
from scipy.optimize import minimize
from scipy.special import betaln, expit, gammaln
from scipy.stats import hypergeom, norm, qmc
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid

from mptlml import draws, objectives
from mptlml.checks import check_shapes
from mptlml.masks import all_masks, random_orders
from mptlml.models import BernoulliMixture
from mptlml.protocol import all_observed, at_masked, token_log_probs
from mptlml.score import chain_rule
from mptlml.training import History, fit

from .transformer import MaskedTransformer

NUM_OBSERVATIONS = 24
DEGREES = range(5)
WIDTH = 2.0  # standard deviation of each coefficient of a Legendre polynomial, a priori
BATCH, NUM_STEPS, LEARNING_RATE, WARM_UP = 64, 1000, 1e-2, 50
FIXED_SIZE = 4  # of 24 observations, 15% are 4
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the prior, for the network that is told which


class Bayesian(Protocol):
    """A Bayesian model of rows of yes-or-no observations whose evidence is known."""

    num_tokens: int

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        """Data sets [n, N], each with parameters of its own."""

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """The log evidence of the observed part of each data set, nats [...]."""

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per observation [..., N]: the posterior predictive distribution."""


class Coins:
    """Flips of one coin whose probability of heads is drawn from Beta(heads, tails) (numbers above 0)."""

    vocab_size = 2

    def __init__(self, heads: float, tails: float, num_tokens: int = NUM_OBSERVATIONS) -> None:
        self.heads, self.tails, self.num_tokens = heads, tails, num_tokens

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        """Rows [n, N] of 0.0 and 1.0, by Polya's urn: each flip makes its like more probable."""
        x = torch.zeros(num_rows, self.num_tokens, dtype=torch.float64)
        for drawn in range(self.num_tokens):
            chance = (self.heads + x.sum(-1)) / (self.heads + self.tails + drawn)
            x[:, drawn] = draws.bernoulli(chance, generator)
        return x

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log B(a + n_1, b + n_0) - log B(a, b), nats per row [...]."""
        observed = all_observed(self.num_tokens) if observed is None else observed
        ones, zeros = self._counts(x, observed)
        found = betaln(self.heads + ones.numpy(), self.tails + zeros.numpy())
        return torch.from_numpy(np.asarray(found - betaln(self.heads, self.tails)))

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per flip [..., N]; exactly 0 at observed flips."""
        ones, zeros = (count[..., None] for count in self._counts(x, observed))
        chosen = torch.where(x == 1, self.heads + ones, self.tails + zeros)
        return at_masked((chosen / (self.heads + self.tails + ones + zeros)).log(), x, observed)

    def _counts(self, x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        check_shapes(x, observed, self.num_tokens)
        ones = torch.where(observed, x, 0.0).sum(-1)
        return ones, observed.sum(-1) - ones


def design(degree: int) -> np.ndarray:
    """Legendre polynomials of degree 0..d at points spread evenly over [-1, 1]: [N, d + 1]."""
    return legvander(np.linspace(-1, 1, NUM_OBSERVATIONS), degree)


@cache
def regression(degree: int, width: float | None = WIDTH, log2_nodes: int = 13) -> BernoulliMixture:
    """Logistic regression with a polynomial of this degree, coefficients N(0, width^2), as a mixture.

    Its components are the points of a Sobol sequence, which fill the prior evenly. width=None: the
    width has a prior of its own, log-normal around WIDTH with a standard deviation of log 2.
    """
    own_width = width is None
    uniform = qmc.Sobol(degree + 1 + own_width, seed=0).random_base2(log2_nodes)
    normal = norm.ppf(uniform)  # [nodes, d + 1 (+ 1)]
    widths = WIDTH * 2 ** normal[:, -1:] if own_width else width
    coefficients = widths * normal[:, : degree + 1]
    probs = expit(coefficients @ design(degree).T)  # [nodes, N]
    weights = torch.full((len(probs),), 1 / len(probs), dtype=torch.float64)
    return BernoulliMixture(weights, torch.from_numpy(probs))


def leave_one_out(model: Bayesian, x: Tensor) -> Tensor:
    """sum_j log p(x_j | all others) of rows [n, N], nats per row: N times the left end of the curve."""
    masks = all_masks(model.num_tokens, 1)
    return torch.cat(
        [token_log_probs(model, rows[:, None], masks).sum((-2, -1)) for rows in x.split(50)]
    )


def laplace(degree: int, x: Tensor, num_steps: int = 50) -> Tensor:
    """Log evidence of rows [n, N] by a normal distribution around the posterior's mode, nats [n]; Newton's method."""
    basis, signs = design(degree), np.where(x > 0, 1, -1)
    mode = np.zeros((len(x), degree + 1))
    for _ in range(num_steps):
        chance = expit(mode @ basis.T)  # [n, N]
        curvature = (chance * (1 - chance))[:, None] * basis.T @ basis + np.eye(
            degree + 1
        ) / WIDTH**2
        slope = (signs * expit(-signs * (mode @ basis.T))) @ basis - mode / WIDTH**2
        mode += np.linalg.solve(curvature, slope[..., None])[..., 0]
    fit = -np.logaddexp(0, -signs * (mode @ basis.T)).sum(-1) - (mode**2).sum(-1) / (2 * WIDTH**2)
    volume = (degree + 1) * np.log(WIDTH) + np.linalg.slogdet(curvature)[1] / 2
    return torch.from_numpy(fit - volume)


def information_criterion(degree: int, x: Tensor) -> Tensor:
    """-BIC/2 of each row [n, N], nats: the highest log-likelihood minus (d + 1)/2 log N.

    Where a polynomial separates the answers the highest is a limit, which a penalty of 10^-4 per
    squared coefficient keeps finite.
    """
    basis = design(degree)
    found = []
    for row in x.numpy():
        signed = np.where(row > 0, 1, -1)[:, None] * basis  # [N, d + 1]
        start = np.zeros(degree + 1)
        best = minimize(_penalised_loss, start, args=(signed,), jac=True, method="BFGS").x
        found.append(-np.logaddexp(0, -signed @ best).sum())
    return torch.tensor(found) - (degree + 1) / 2 * np.log(len(basis))


def _penalised_loss(beta: np.ndarray, signed: np.ndarray) -> tuple[float, np.ndarray]:
    """Minus the log-likelihood of coefficients, with the penalty, and its slope; signed: see above."""
    margin = signed @ beta
    value = np.logaddexp(0, -margin).sum() + 1e-4 * beta @ beta
    return value, 2e-4 * beta - signed.T @ expit(-margin)


def train(
    model: Bayesian,
    *,
    seed: int,
    num_steps: int = NUM_STEPS,
    size: int | None = None,
    width: int = 48,
    distance: str = "near",
    learning_rate: float = LEARNING_RATE,
) -> tuple[MaskedTransformer, History]:
    """A network that learns to predict hidden observations of data sets drawn from the model, each seen once.

    size: hide always so many observations; by default any number, uniformly. distance: "none" for
    observations without an order.
    """
    generator = torch.Generator().manual_seed(seed)
    net = MaskedTransformer(
        model.num_tokens, 2, width=width, distance=distance, generator=generator
    )

    def objective() -> Tensor:
        rows = model.sample(BATCH, generator=generator).long()
        if size is None:
            return objectives.stratified_size(net, rows, generator=generator)
        return objectives.fixed_size(net, rows, size, share_masks=False, generator=generator)

    return net, _fit(objective, net, num_steps, learning_rate)


def _fit(
    objective: Callable[[], Tensor], net: nn.Module, num_steps: int, learning_rate: float
) -> History:
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    return fit(
        objective,
        weights,
        num_steps=num_steps,
        learning_rate=learning_rate,
        decay_steps=num_steps,
        warm_up=WARM_UP,
        track_every=num_steps,
        name="evidence",
    )


class Perceptron(nn.Module):
    """Two hidden layers that read all visible answers by their places; the transformer knows distances alone."""

    def __init__(self, num_tokens: int, *, width: int = 256, generator: Generator) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        sizes = [2 * num_tokens, width, width, num_tokens]
        maps = [nn.Linear(*pair, device="meta").to_empty(device="cpu") for pair in pairwise(sizes)]
        for each in maps:
            nn.init.normal_(each.weight, std=each.in_features**-0.5, generator=generator)
            nn.init.zeros_(each.bias)
        self.layers = nn.Sequential(maps[0], nn.GELU(), maps[1], nn.GELU(), maps[2])

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per observation [..., N]; exactly 0 at observed ones."""
        x, observed = torch.broadcast_tensors(x, observed)
        sign = 2.0 * x - 1
        answer = self.layers(torch.cat([torch.where(observed, sign, 0.0), observed.float()], -1))
        return at_masked(logsigmoid(sign * answer), x, observed)


def train_perceptron(model: Bayesian, *, seed: int, num_steps: int = NUM_STEPS) -> Perceptron:
    """One that is trained as the transformer is, on 256 data sets a step."""
    generator = torch.Generator().manual_seed(seed)
    net = Perceptron(model.num_tokens, generator=generator)

    def objective() -> Tensor:
        rows = model.sample(4 * BATCH, generator=generator).float()
        return objectives.stratified_size(net, rows, generator=generator)

    _fit(objective, net, num_steps, 2e-3)
    return net


class Told:
    """A network whose first token says which prior is meant, and which predicts the others: N tokens."""

    def __init__(self, net: MaskedTransformer, which: int) -> None:
        self.net, self.which, self.num_tokens = net, which, net.num_tokens - 1

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R, prior), nats per observation [..., N]; exactly 0 at observed ones."""
        x, observed = torch.broadcast_tensors(x, observed)
        said = x.new_full((*x.shape[:-1], 1), 2 + self.which)
        seen = observed.new_ones(said.shape)
        answer = self.net.conditional_log_prob(
            torch.cat([said, x], -1), torch.cat([seen, observed], -1)
        )
        return answer[..., 1:]


def train_told(degree: int, *, seed: int, num_steps: int) -> MaskedTransformer:
    """One network for all WIDTHS of the prior: its rows begin with a token that says which (see `Told`)."""
    generator = torch.Generator().manual_seed(seed)
    net = MaskedTransformer(1 + NUM_OBSERVATIONS, 2 + len(WIDTHS), generator=generator)

    def objective() -> Tensor:
        which = int(draws.randint(len(WIDTHS), [1], None, generator))
        rows = regression(degree, WIDTHS[which]).sample(BATCH, generator=generator).long()
        return objectives.stratified_size(Told(net, which), rows, generator=generator)

    _fit(objective, net, num_steps, LEARNING_RATE)
    return net


def unlike(num_rows: int, *, generator: Generator) -> dict[str, Tensor]:
    """Data sets [n, N] that a parabola with this prior would hardly give, by name."""
    place = torch.arange(NUM_OBSERVATIONS)
    noise = torch.rand(num_rows, NUM_OBSERVATIONS, generator=generator) < 0.05
    blocks = (place * 5 // NUM_OBSERVATIONS).remainder(2).bool()
    first = torch.randint(4, 20, (num_rows, 1), generator=generator)
    return {
        "a parabola four times as steep": regression(2, 4 * WIDTH).sample(
            num_rows, generator=generator
        ),
        "degree 4, four times as steep": regression(4, 4 * WIDTH).sample(
            num_rows, generator=generator
        ),
        "five blocks, 5% noise": (blocks ^ noise).double(),
        "a clean step": (place >= first).double(),
    }


def by_count(net: MaskedTransformer) -> np.ndarray:
    """p(heads | r visible flips, k of them heads) of a network that reads a set: [r, k], NaN for k > r.

    The answer depends on nothing else, so these 300 numbers say all curves and areas of the network
    exactly.
    """
    num_tokens = net.num_tokens
    seen = torch.arange(num_tokens)[:, None]  # r = 0..N - 1
    place = torch.arange(num_tokens)
    chance = np.full((num_tokens, num_tokens), np.nan)
    for r in range(num_tokens):
        rows = (place < torch.arange(r + 1)[:, None]).long()  # the first k flips are heads
        rows[:, -1] = 1
        answer = net.conditional_log_prob(rows, place < seen[r])[:, -1]
        chance[r, : r + 1] = answer.exp().detach().numpy()
    return chance


def curve_of_count(chance: np.ndarray, heads: int) -> np.ndarray:
    """The curve [N] of a data set with so many heads, exactly, from a table of `by_count`.

    Of r visible flips, k are heads with the hypergeometric probability; a hidden flip is then a
    head with probability (heads - k) / (N - r).
    """
    num_tokens = len(chance)
    scores = []
    for hidden in range(1, num_tokens + 1):
        r = num_tokens - hidden
        k = np.arange(max(0, r - (num_tokens - heads)), min(r, heads) + 1)
        weight = hypergeom(num_tokens, heads, r).pmf(k)
        share, head = (heads - k) / hidden, chance[r, k]
        scores.append(weight @ (share * np.log(head) + (1 - share) * np.log1p(-head)))
    return np.array(scores)


def coins_by_count(model: Coins) -> np.ndarray:
    """The same table for the exact model: (a + k) / (a + b + r)."""
    r, k = np.ogrid[: model.num_tokens, : model.num_tokens]
    return np.where(k <= r, (model.heads + k) / (model.heads + model.tails + r), np.nan)


def log_binomial(num_tokens: int) -> np.ndarray:
    """log of how many data sets have k = 0..N heads: [N + 1]."""
    heads = np.arange(num_tokens + 1)
    return gammaln(num_tokens + 1) - gammaln(heads + 1) - gammaln(num_tokens - heads + 1)


def one_order(net: MaskedTransformer, x: Tensor, generator: Generator) -> Tensor:
    """The chain rule's sum along one random order of each row [n, N], nats per row."""
    orders = random_orders(x.shape[-1], len(x), generator=generator)
    rows = zip(x.split(1), orders.split(1), strict=True)
    return torch.cat([chain_rule(net, row, order).sum(-1)[0] for row, order in rows])
