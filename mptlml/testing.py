"""The laws that every model obeys, to check on a model of your own; no test framework is needed.

    check_model(model, values=(0.0, 1.0))                            # a model as it stands, of binary tokens
    check_model(Case(build, 6, shapes=((), ()), values=(0.0, 1.0)))  # built from parameters: gradients as well
    check_evaluator(evaluate, language, generator=generator)         # whatever is said to measure log p(x)

A model is held only to the laws that concern it: LAWS, at the end, says what a model needs for each.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck

from .curve import Estimate
from .draws import randint, randn, seeded
from .masks import random_masks, random_orders
from .protocol import VocabularyModel, own_words, summarise
from .score import chain_rule, exact_curve

LEVEL = 0.99  # of the intervals by which evaluators are judged
GRID = torch.linspace(-40, 40, 801, dtype=torch.float64)  # for densities of real tokens


@dataclass(frozen=True, eq=False)
class Case:
    """A model under test: `build(*parameters)` makes it from free real parameters of the given shapes.

    values: the values of a token; None for a real number, whose density is integrated over GRID,
    which must reach past its tails and resolve it. words: rows are int64 ids, not floating numbers.
    coherent: whether the answers belong to one joint distribution (None: they do if there is a
    log_prob). tolerance: what rounding explains, nats. A model that draws at random must draw the
    same numbers after every `build`.
    """

    build: Callable[..., Any]
    num_tokens: int
    shapes: tuple[tuple[int, ...], ...] = ()
    values: tuple[float, ...] | None = None
    words: bool = False
    coherent: bool | None = None
    tolerance: float = 1e-10
    dtype: torch.dtype = torch.float64
    device: str = "cpu"

    def parameters(self) -> list[Tensor]:
        """The parameters, the same at every call, requiring gradients."""
        generator = seeded(11)
        drawn = [randn(shape, None, generator) for shape in self.shapes]
        return [value.to(self.device, self.dtype).requires_grad_() for value in drawn]

    def model(self) -> Any:
        """A fresh model."""
        return self.build(*(value.detach() for value in self.parameters()))

    def rows(self, count: int) -> Tensor:
        """Random rows [count, D]."""
        shape = count, self.num_tokens
        if self.values is None:
            drawn = 1.5 * randn(shape, None, seeded(5))
        else:
            word = randint(len(self.values), shape, None, seeded(5))
            drawn = torch.tensor(self.values).double()[word]
        return drawn.to(self.device, torch.int64 if self.words else self.dtype)

    def masks(self, count: int = 64) -> Tensor:
        """Random masks [P, 1, D] of all sizes, and first that which hides nothing."""
        sizes = 1 + torch.arange(count) % self.num_tokens
        drawn = random_masks(self.num_tokens, sizes, generator=seeded(7))
        drawn[0] = True
        return drawn[:, None].to(self.device)

    def has(self, need: str) -> bool:
        """Whether the case has `need`: a method of the model, parameters, or coherence."""
        if need == "parameters":
            return bool(self.shapes)
        if need == "coherence" and self.coherent is not None:
            return self.coherent
        return hasattr(self.model(), "log_prob" if need == "coherence" else need)

    def laws(self) -> list[Callable[["Case"], None]]:
        """The laws that concern the model: it has what they need."""
        return [law for law, needs in LAWS.items() if all(map(self.has, needs))]


def check_model(model: Any, **options: Any) -> list[str]:
    """Hold a model, or a Case of one, to LAWS; `options` are fields of the Case. Returns the laws that concern it.

    Raises AssertionError: all broken laws.
    """
    case = model if isinstance(model, Case) else Case(lambda: model, model.num_tokens)
    case = replace(case, **options)
    laws, broken = case.laws(), []
    for law in laws:
        try:
            law(case)
        except (AssertionError, GradcheckError) as error:
            broken.append(f"{law.__name__}: {law.__doc__}\n{error}")
    assert not broken, "\n\n".join(["broken laws:", *broken])
    return [law.__name__ for law in laws]


class Verdict(NamedTuple):
    """What an evaluator measures, and the two numbers that say so.

    verdict, the first that holds: "impossible", above log p(x) where it is known; "mass above 1",
    the score of no distribution; "bound", below log p(x); "unbiased", within a margin of it; "not
    told from log p". bias: of the mean over rows, nats per row. mass: sum_x exp(E[value]) where
    answers contradict each other. Both with their error; the text has half the interval of LEVEL.
    """

    verdict: str
    bias: Estimate
    mass: Estimate

    def __str__(self) -> str:
        low, high = self.bias.interval(LEVEL)
        away = f"{self.bias.mean:.2f} ± {(high - low) / 2:.2f} nats per row above log p(x)"
        return f"{self.verdict}: {away}; mass {self.mass.mean:.2f}"


class Incoherent(VocabularyModel):
    """Random answers, always the same ones, for four tokens of three words: no joint distribution has them.

    Along an order that looks at visible words alone, exp(log q) of the 81 texts sums to 1, and
    along a mean of orders to less. What sums to more is no log-probability.
    """

    num_tokens, vocab_size = 4, 3
    answers = randn([256, 4, 3], None, seeded(81)).log_softmax(-1)

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log q(x_j = v | x_R), nats per token [..., 4, 3]."""
        seen = torch.where(observed, x.long(), 3)
        return self.answers[(seen * 4 ** torch.arange(4)).sum(-1)]


@torch.no_grad()
def check_evaluator(
    evaluate: Callable[[Any, Tensor, Generator], Tensor],
    truth: Any,
    *,
    num_rows: int = 1024,
    margin: float = 0.25,
    generator: Generator,
) -> Verdict:
    """What `evaluate(model, x, generator)` measures, in nats for each row x [N, D], of two models: a Verdict.

    truth: a model with `sample` and `log_prob`, whose rows and exact answers the evaluator is given
    first. On average no distribution has a higher log-probability of these rows. Exact answers
    agree along all orders, though: whether an order was chosen with the hidden words in hand shows
    in `Incoherent` alone. margin: nats per row, within which the interval of LEVEL must lie for the
    verdict "unbiased". Raises ValueError: values of another shape or not finite.
    """

    def values(model: Any, x: Tensor) -> Tensor:
        found = evaluate(model, x, generator)
        if found.shape != x.shape[:1] or not found.isfinite().all():
            raise ValueError(f"expected finite nats of shape ({len(x)},), got {found}")
        return found.double()

    x = truth.sample(num_rows, generator=generator)
    texts = torch.cartesian_prod(*4 * [torch.arange(3)])
    exact = truth.log_prob(x)
    bias = _mean(values(truth, x) - exact)
    every = torch.stack([values(Incoherent(), texts) for _ in range(64)])
    score = every.mean(0)
    mass = _mean((score.exp() * (1 + every - score)).sum(-1))  # its error to first order
    (low, high), rounding = bias.interval(LEVEL), 1e-5 * exact.abs().mean()
    holds = {
        "impossible": low > rounding,
        "mass above 1": mass.interval(LEVEL)[0] > 1.00001,
        "bound": high < -rounding,
        "unbiased": max(-low, high) < margin,
    }
    return Verdict(next(filter(holds.get, holds), "not told from log p"), bias, mass)


def _mean(values: Tensor) -> Estimate:
    """The mean of independent values [n], with its error."""
    count = len(values)
    return Estimate(float(values.mean()), float(values.std()) / math.sqrt(count), count - 1)


def observed_tokens_score_exactly_zero(case: Case) -> None:
    """The answer at an observed token is 0, not merely close to it."""
    answer = case.model().conditional_log_prob(case.rows(3), case.masks())
    assert not answer[case.masks().expand(answer.shape)].any()


def masked_tokens_predict_nothing(case: Case) -> None:
    """The value at a masked token changes no other token's answer and no log p(x_R), not even in a bit."""
    x, observed = case.rows(3), case.masks()
    kept = observed | torch.eye(case.num_tokens, device=x.device).bool()[:8, None, None]  # in turn
    for garbage in (x.roll(1, 0), torch.full_like(x, 0 if case.words else math.nan)):
        both = [torch.where(kept, x, other) for other in (garbage, x)]
        found, truth = (case.model().conditional_log_prob(rows, observed) for rows in both)
        _same(found.where(kept, 0), truth.where(kept, 0), 0)
        if case.has("log_prob"):
            found, truth = (case.model().log_prob(rows, observed) for rows in both)
            _same(found, truth, 0)


def batched_is_looped(case: Case) -> None:
    """Masks [P, 1, D] against rows [N, D], or one mask per row, give the same answers as each pair alone."""
    model, x, masks = case.model(), case.rows(4), case.masks(5)[1:]  # as many as there are rows
    alone = [model.conditional_log_prob(row, mask) for mask in masks[:, 0] for row in x]
    looped = torch.stack(alone).unflatten(0, (4, 4))
    _same(model.conditional_log_prob(x, masks), looped, case.tolerance)
    _same(model.conditional_log_prob(x, masks[:, 0]), looped.diagonal().mT, case.tolerance)


def conditionals_are_distributions(case: Case) -> None:
    """The probabilities of a masked token's values sum to 1; the density of a real token does, over GRID."""
    x, observed = case.rows(2), case.masks()
    values, width = (GRID, GRID[1] - GRID[0]) if case.values is None else (case.values, 1)
    tried = [torch.where(observed, x, float(value)).to(x) for value in values]
    chance = [case.model().conditional_log_prob(one, observed).exp() for one in tried]
    total = (torch.stack(chance).sum(0) * width).where(~observed, 1)
    _same(total, torch.ones_like(total), case.tolerance)


def every_word_is_answered_for(case: Case) -> None:
    """Words' probabilities sum to 1 at every token; the word that stands there has the token's own answer.

    At an observed token that holds where the answers belong to one joint distribution: its word is
    certain.
    """
    model, x, observed = case.model(), case.rows(3), case.masks()
    every, answer = model.vocabulary_log_prob(x, observed), model.conditional_log_prob(x, observed)
    _same(every.exp().sum(-1), torch.ones_like(answer), case.tolerance)
    own = own_words(every, x)
    own = own if case.has("coherence") else own.where(~observed, 0)
    _same(own, answer, case.tolerance)


def area_and_orders_give_log_prob(case: Case) -> None:
    """The chain rule's sum is the same along every order, and is the area (Proposition 1)."""
    count, model, x = case.num_tokens, case.model(), case.rows(3)
    orders = random_orders(count, 60, generator=seeded(3))
    sums = chain_rule(model, x, orders).sum(-1)
    truth = model.log_prob(x) if hasattr(model, "log_prob") else sums[0]
    _same(sums, truth.expand(sums.shape), case.tolerance)
    if count <= 10:
        area = torch.as_tensor(exact_curve(model, x).rows).sum(0)
        _same(area.to(truth), truth, case.tolerance)


def marginals_follow_the_chain_rule(case: Case) -> None:
    """log p(x_R) = log p(x_R without j) + log p(x_j | x_R without j); log p of no token is 0."""
    model, x, observed = case.model(), case.rows(3), case.masks()
    first = observed & (observed.cumsum(-1) == 1)
    fewer = observed & ~first
    marginal = model.log_prob(x, observed)
    step = model.conditional_log_prob(x, fewer).where(first, 0).sum(-1)
    _same(marginal, model.log_prob(x, fewer) + step, case.tolerance)
    _same(marginal[0], model.log_prob(x), case.tolerance)  # the first mask hides nothing
    nothing = model.log_prob(x, ~observed[0])
    _same(nothing, torch.zeros_like(nothing), case.tolerance)


def means_over_rows_are_means(case: Case) -> None:
    """What a model averages over rows by itself is the mean of its answers."""
    model, x, masks = case.model(), case.rows(5), case.masks()
    found = model.mean_conditional_log_prob(summarise(model, x), masks[:, 0])
    _same(found, model.conditional_log_prob(x, masks).mean(-2), case.tolerance)


def gradients_are_right(case: Case) -> None:
    """Gradients of every answer with respect to every parameter agree with finite differences."""

    def answers(*parameters: Tensor) -> tuple[Tensor, ...]:
        found = _answers(case, case.build(*parameters))
        cut_off = [name for name, answer in found.items() if not answer.requires_grad]
        assert not cut_off, f"no gradient reaches {cut_off}"  # gradcheck would ignore them
        return tuple(found.values())

    gradcheck(answers, case.parameters())


def dtype_follows_the_input(case: Case) -> None:
    """float32 in, float32 out, on the same device, and close to the answer in float64."""
    short, exact = replace(case, dtype=torch.float32), _answers(case, case.model())
    for name, answer in _answers(short, short.model()).items():
        assert answer.dtype == torch.float32, name
        _same(answer.double(), exact[name], 1e-4, 1e-4)


def samples_follow_log_prob(case: Case) -> None:
    """E[q(x) / p(x)] = 1 over samples of p, for q of smaller parameters, to four standard errors."""
    model, other = case.model(), case.build(*(0.9 * value.detach() for value in case.parameters()))
    x = model.sample(20_000, generator=seeded(1))
    ratio = _mean((other.log_prob(x) - model.log_prob(x)).exp().double())
    assert abs(ratio.mean - 1) < 4 * ratio.stderr, f"E[q/p] is {ratio}, not 1"


def _answers(case: Case, model: Any) -> dict[str, Tensor]:
    """Every answer of the model about the case's rows and masks, by name."""
    x, masks = case.rows(2), case.masks(16)
    ways = {
        "conditional_log_prob": (x, masks),
        "log_prob": (x, masks),
        "mean_conditional_log_prob": (x, masks[:, 0]),
        "mean_log_prob": (x,),
    }
    return {way: getattr(model, way)(*given) for way, given in ways.items() if case.has(way)}


def _same(found: Tensor, expected: Tensor, tolerance: float, relative: float = 0) -> None:
    torch.testing.assert_close(found, expected, rtol=relative, atol=tolerance)


# each law, and what a model needs for it besides conditional_log_prob
LAWS: dict[Callable[[Case], None], list[str]] = {
    observed_tokens_score_exactly_zero: [],
    masked_tokens_predict_nothing: [],
    batched_is_looped: [],
    conditionals_are_distributions: [],
    every_word_is_answered_for: ["vocabulary_log_prob"],
    area_and_orders_give_log_prob: ["coherence"],
    marginals_follow_the_chain_rule: ["coherence", "log_prob"],
    means_over_rows_are_means: ["mean_conditional_log_prob"],
    gradients_are_right: ["parameters"],
    dtype_follows_the_input: ["parameters"],
    samples_follow_log_prob: ["sample", "log_prob", "parameters"],
}
