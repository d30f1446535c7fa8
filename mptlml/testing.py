"""The laws that every model obeys, to check on a model of your own; no test framework is needed.

    check_model(model, values=(0.0, 1.0))                            # a model as it stands, of binary tokens
    check_model(Case(build, 6, shapes=((), ()), values=(0.0, 1.0)))  # built from parameters: gradients as well
    check_evaluator(evaluate, language, generator=generator)         # whatever is said to measure log p(x)

A model is held only to the laws that concern it: `@law(...)` above each says what a model needs for
it.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck

from .checks import check_count
from .curve import Estimate
from .draws import seeded
from .masks import all_masks, all_orders, random_masks, random_orders
from .protocol import all_observed, own_words, summarise
from .score import chain_rule, exact_curve

LAWS: dict[
    str, Callable[["Case"], None]
] = {}  # each law by its name, in the order in which they stand below
NEEDS: dict[str, tuple[str, ...]] = {}  # what each needs besides conditional_log_prob


def law(*needs: str) -> Callable[[Callable[["Case"], None]], Callable[["Case"], None]]:
    """Enters the function below it among the LAWS, for models that have all of `needs`."""

    def enter(check: Callable[["Case"], None]) -> Callable[["Case"], None]:
        LAWS[check.__name__], NEEDS[check.__name__] = check, needs
        return check

    return enter


@dataclass(frozen=True, eq=False)
class Case:
    """A model under test: `build(*parameters)` makes it from free real parameters of the given shapes.

    values: the values of a token; None for a real number, whose density is integrated over `grid`:
    (lowest, highest, how many), past the tails and finer than the narrowest density. words: rows
    are int64 ids, not floating numbers. coherent: whether the answers belong to one joint
    distribution (None: they do if there is a log_prob). without: {law: why the model does not obey
    it}. tolerance: what rounding explains, nats. A model that draws at random must draw the same
    numbers after every `build`.
    """

    build: Callable[..., Any]
    num_tokens: int
    shapes: tuple[tuple[int, ...], ...] = ()
    values: tuple[float, ...] | None = None
    words: bool = False
    grid: tuple[float, float, int] = (-40.0, 40.0, 801)
    coherent: bool | None = None
    without: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = 1e-10
    dtype: torch.dtype = torch.float64
    device: str = "cpu"

    def parameters(self) -> list[Tensor]:
        """The parameters, the same at every call, requiring gradients."""
        generator = seeded(11)
        drawn = (
            torch.randn(shape, generator=generator, dtype=torch.float64) for shape in self.shapes
        )
        return [value.to(self.device, self.dtype).requires_grad_() for value in drawn]

    def model(self) -> Any:
        """A fresh model."""
        return self.build(*(value.detach() for value in self.parameters()))

    def some_rows(self, count: int) -> Tensor:
        """Random rows [count, D]."""
        shape = (count, self.num_tokens)
        if self.values is None:
            drawn = 1.5 * torch.randn(shape, generator=seeded(5), dtype=torch.float64)
        else:
            values = torch.tensor(self.values, dtype=torch.float64)
            drawn = values[torch.randint(len(self.values), shape, generator=seeded(5))]
        return drawn.to(self.device, torch.int64 if self.words else self.dtype)

    def masks(self, at_most: int = 256) -> Tensor:
        """Masks [P, 1, D] of all sizes: every mask where there are at most `at_most`, else random ones."""
        if 2**self.num_tokens <= at_most:
            drawn = torch.cat(
                [all_masks(self.num_tokens, size) for size in range(1, self.num_tokens + 1)]
            )
        else:
            sizes = torch.linspace(1, self.num_tokens, at_most).round().long()
            drawn = random_masks(self.num_tokens, sizes, generator=seeded(7))
        return drawn[:, None].to(self.device)

    def has(self, need: str) -> bool:
        """Whether the case has `need`: a method of the model, or one of the three other words below."""
        log_prob = getattr(self.model(), "log_prob", None)
        if need == "parameters":
            return bool(self.shapes)
        if need == "coherence":
            return log_prob is not None if self.coherent is None else self.coherent
        if need == "log_prob(x, observed)":
            return log_prob is not None and "observed" in inspect.signature(log_prob).parameters
        return callable(getattr(self.model(), need, None))

    def lacks(self, law: str) -> str:
        """Why a law does not concern this model; "" where it does."""
        missing = [need for need in NEEDS[law] if not self.has(need)]
        return self.without.get(law, f"it needs {' and '.join(missing)}" if missing else "")


def check_model(model: Any, **options: Any) -> dict[str, str]:
    """Hold a model, or a Case of one, to LAWS; `options` are fields of the Case. Returns {law: outcome}.

    An outcome is "obeyed", or why the law does not concern the model. Raises AssertionError: all
    broken laws.
    """
    case = (
        replace(model, **options)
        if isinstance(model, Case)
        else Case(lambda: model, model.num_tokens, **options)
    )
    found, broken = {}, []
    for name, law in LAWS.items():
        found[name] = case.lacks(name) or "obeyed"
        if found[name] == "obeyed":
            try:
                law(case)
            except AssertionError as error:
                broken.append(f"{name}: {law.__doc__}\n{error}")
    if broken:
        raise AssertionError("\n\n".join([f"broken laws: {len(broken)}", *broken]))
    return found


class Verdict(NamedTuple):
    """What an evaluator measures: "unbiased", "bound" or "impossible", its bias, and its noise.

    bias: of the mean over rows, nats per row, with its error. noise: standard deviation of the
    value of one row over draws, root mean square over rows.
    """

    verdict: str
    bias: Estimate
    noise: float

    def __str__(self) -> str:
        bias = f"{self.bias.mean:.2f} ± {self.bias.stderr:.2f} nats per row"
        return f"{self.verdict}: {bias} above log p(x), noise {self.noise:.2f}"


@torch.no_grad()
def check_evaluator(
    evaluate: Callable[[Any, Tensor, Generator], Tensor],
    truth: Any,
    *,
    num_rows: int = 512,
    draws: int = 2,
    level: float = 0.99,
    generator: Generator,
) -> Verdict:
    """What `evaluate(model, x, generator)` measures, in nats for each row x [N, D], where log p(x) is known: a Verdict.

    truth: a model with `sample` and `log_prob`, whose rows and whose exact answers the evaluator is
    given. On average no distribution has a higher log-probability of these rows than the truth, so
    what lies above it is "impossible"; what lies below may be a "bound"; "unbiased" is what is not
    told from log p(x) at this level. Raises ValueError: fewer than 2 rows or draws, values of
    another shape or not finite.
    """
    check_count(num_rows, "num_rows", at_least=2)
    x = truth.sample(num_rows, generator=generator)
    found = [evaluate(truth, x, generator) for _ in range(check_count(draws, "draws", at_least=2))]
    for value in found:
        if value.shape != (num_rows,) or not value.isfinite().all():
            raise ValueError(
                f"an evaluator must answer finite nats of shape ({num_rows},), got {value}"
            )
    value = torch.stack(found).double()
    away = value.mean(0) - truth.log_prob(x)
    bias = Estimate(float(away.mean()), float(away.std()) / math.sqrt(num_rows), num_rows - 1)
    low, high = bias.interval(level)
    rounding = 1e-5 * float(value.abs().mean())
    verdict = "impossible" if low > rounding else "bound" if high < -rounding else "unbiased"
    return Verdict(verdict, bias, float(value.var(0).mean().sqrt()))


@law()
def observed_tokens_score_exactly_zero(case: Case) -> None:
    """The answer at an observed token is 0, not merely close to it."""
    observed = torch.cat([case.masks(), all_observed(case.num_tokens, case.device)[None, None]])
    answer = case.model().conditional_log_prob(case.some_rows(3), observed)
    assert not answer[observed.expand(answer.shape)].any(), (
        "the answer at an observed token is not 0"
    )


@law()
def masked_tokens_predict_nothing(case: Case) -> None:
    """The value at a masked token changes no other token's answer and no log p(x_R), not even in a bit."""
    x, observed = case.some_rows(3), case.masks()
    truth = case.model().conditional_log_prob(x, observed)
    for token in torch.linspace(0, case.num_tokens - 1, min(8, case.num_tokens)).long().tolist():
        asked = torch.arange(case.num_tokens, device=case.device) == token
        for wild in _garbage(case, x, observed | asked):
            answer = case.model().conditional_log_prob(wild, observed)
            _same(
                answer[..., token],
                truth[..., token],
                0,
                f"token {token} depends on other masked tokens",
            )
            assert not answer[observed.expand(answer.shape)].any(), (
                "values at masked tokens changed observed ones"
            )
    if case.has("log_prob(x, observed)"):
        for wild in _garbage(case, x, observed):
            _same(
                case.model().log_prob(wild, observed),
                case.model().log_prob(x, observed),
                0,
                "log_prob depends on masked tokens",
            )


@law()
def batched_is_looped(case: Case) -> None:
    """Masks [P, 1, D] against rows [N, D], or one mask per row, give the same answers as each pair alone."""
    model, x, masks = case.model(), case.some_rows(4), case.masks()
    masks = masks[torch.linspace(0, len(masks) - 1, len(x)).long()]  # as many as there are rows
    looped = torch.stack(
        [torch.stack([model.conditional_log_prob(row, mask[0]) for row in x]) for mask in masks]
    )
    _same(
        model.conditional_log_prob(x, masks),
        looped,
        case.tolerance,
        "masks [P, 1, D] against rows [N, D]",
    )
    own = model.conditional_log_prob(x, masks[:, 0])
    _same(own, looped.diagonal().mT, case.tolerance, "a mask for each row")


@law()
def conditionals_are_distributions(case: Case) -> None:
    """The probabilities of a masked token's values sum, or integrate, to 1."""
    x, observed = case.some_rows(2), case.masks()
    grid = torch.linspace(*case.grid, dtype=torch.float64)
    values = (grid if case.values is None else torch.tensor(case.values)).to(x)
    answers = [
        case.model().conditional_log_prob(torch.where(observed, x, value), observed)
        for value in values
    ]
    chance = torch.stack(answers).exp()
    total = torch.trapezoid(chance, values, dim=0) if case.values is None else chance.sum(0)
    what = "probabilities do not add up to 1"
    if case.values is None:
        what += f", over the grid {case.grid}, which may be too coarse or too short: see Case.grid"
    _same(total.where(~observed, 1.0), torch.ones_like(total), case.tolerance, what)


@law("vocabulary_log_prob")
def every_word_is_answered_for(case: Case) -> None:
    """Words' probabilities sum to 1 at every token; the word that stands there has the token's own answer.

    At an observed token that holds where the answers belong to one joint distribution: its word is
    certain.
    """
    model, x = case.model(), case.some_rows(3)
    observed = torch.cat([case.masks(), all_observed(case.num_tokens, case.device)[None, None]])
    every, answer = model.vocabulary_log_prob(x, observed), model.conditional_log_prob(x, observed)
    _same(
        every.exp().sum(-1),
        torch.ones_like(answer),
        case.tolerance,
        "probabilities of words do not add up to 1",
    )
    own = own_words(every, x)
    own = own if case.has("coherence") else own.where(~observed, 0.0)
    _same(own, answer, case.tolerance, "vocabulary_log_prob and conditional_log_prob disagree")


@law()
def inputs_are_left_alone(case: Case) -> None:
    """An answer changes neither rows nor masks nor the tensors that the model holds."""
    model, x, observed = case.model(), case.some_rows(3), case.masks()
    own = model.state_dict() if isinstance(model, torch.nn.Module) else vars(model)
    held = {
        name: value
        for name, value in dict(own, x=x, observed=observed).items()
        if torch.is_tensor(value)
    }
    before = {name: value.clone() for name, value in held.items()}
    _answers(model, x, observed, case)
    changed = [name for name, value in held.items() if not torch.equal(value, before[name])]
    assert not changed, f"changed in place: {', '.join(changed)}"


@law("coherence")
def area_and_orders_give_log_prob(case: Case) -> None:
    """The chain rule's sum is the same along every order, and is the area (Proposition 1)."""
    count, model, x = case.num_tokens, case.model(), case.some_rows(3)
    orders = all_orders(count) if count <= 5 else random_orders(count, 60, generator=seeded(3))
    sums = chain_rule(model, x, orders).sum(-1).detach()
    truth = model.log_prob(x).detach() if hasattr(model, "log_prob") else sums[0]
    _same(sums, truth.expand(sums.shape), case.tolerance, "orders disagree")
    if count <= 10:
        area = torch.as_tensor(exact_curve(model, x).rows).sum(0)
        _same(area.to(truth), truth, case.tolerance, "the area is not log p(x)")


@law("coherence", "log_prob(x, observed)")
def marginals_follow_the_chain_rule(case: Case) -> None:
    """log p(x_R) = log p(x_R without j) + log p(x_j | x_R without j); log p of no token is 0."""
    model, x, every = case.model(), case.some_rows(3), all_observed(case.num_tokens, case.device)
    observed = torch.cat([~case.masks(), every[None, None]])
    first = every.cumsum(-1) == (observed.int().argmax(-1, keepdim=True) + 1)
    fewer = observed & ~first
    step = torch.where(observed & first, model.conditional_log_prob(x, fewer), 0.0).sum(-1)
    _same(
        model.log_prob(x, observed),
        model.log_prob(x, fewer) + step,
        case.tolerance,
        "marginals do not chain",
    )
    _same(
        model.log_prob(x, ~every),
        torch.zeros_like(step[0]),
        case.tolerance,
        "log p of no token is not 0",
    )
    _same(
        model.log_prob(x, every),
        model.log_prob(x),
        case.tolerance,
        "all tokens observed is not the default",
    )


@law("mean_conditional_log_prob")
def means_are_means_over_rows(case: Case) -> None:
    """The model's own averages over rows are the means of its answers, from rows and from their summary."""
    model, x, masks = case.model(), case.some_rows(4), case.masks()
    mean = model.conditional_log_prob(x, masks).mean(1)
    for data in (x, summarise(model, x)):
        _same(
            model.mean_conditional_log_prob(data, masks[:, 0]),
            mean,
            case.tolerance,
            "mean_conditional_log_prob",
        )
        if hasattr(model, "mean_log_prob"):
            _same(
                model.mean_log_prob(data), model.log_prob(x).mean(), case.tolerance, "mean_log_prob"
            )


@law("parameters")
def gradients_are_right(case: Case) -> None:
    """Gradients of every answer with respect to every parameter agree with finite differences."""
    x, masks = case.some_rows(2), case.masks(16)

    def answers(*parameters: Tensor) -> tuple[Tensor, ...]:
        found = _answers(case.build(*parameters), x, masks, case)
        cut_off = [name for name, answer in found.items() if not answer.requires_grad]
        assert not cut_off, f"no gradient reaches {cut_off}"  # gradcheck would ignore them
        return tuple(found.values())

    try:
        gradcheck(answers, case.parameters())
    except GradcheckError as error:
        raise AssertionError(
            f"outputs {list(_answers(case.model(), x, masks, case))}: {error}"
        ) from None


@law("parameters")
def dtype_follows_the_input(case: Case) -> None:
    """float32 in, float32 out, on the same device, and close to the answer in float64."""
    single, double = (replace(case, dtype=dtype) for dtype in (torch.float32, torch.float64))
    exact = _answers(double.model(), double.some_rows(3), case.masks(), case)
    for name, answer in _answers(single.model(), single.some_rows(3), case.masks(), case).items():
        kinds = answer.dtype, exact[name].dtype, answer.device.type
        assert kinds == (torch.float32, torch.float64, torch.device(case.device).type), (
            f"{name} answers in {kinds}"
        )
        _same(answer.double(), exact[name], 1e-4, f"{name} in float32", rtol=1e-4)


@law("sample")
def samples_follow_the_generator(case: Case) -> None:
    """The generator that is passed in decides the rows [N, D]; torch's global one stays as it is."""
    before = torch.get_rng_state()
    one, same, other = (case.model().sample(50, generator=seeded(seed)) for seed in (3, 3, 4))
    assert one.shape == (50, case.num_tokens), f"50 samples have shape {tuple(one.shape)}"
    assert torch.equal(one, same) and not torch.equal(one, other), (
        "the seed does not decide the samples"
    )
    assert torch.equal(torch.get_rng_state(), before), "sampling moved the global generator"


@law("sample", "log_prob", "parameters")
def samples_follow_log_prob(case: Case) -> None:
    """E[q(x) / p(x)] = 1 over samples of p, for q of smaller parameters, to four standard errors."""
    model, other = case.model(), case.build(*(0.9 * value.detach() for value in case.parameters()))
    x = model.sample(20_000, generator=seeded(1))
    ratio = (other.log_prob(x) - model.log_prob(x)).exp().double()
    mean, error = float(ratio.mean()), float(ratio.std()) / math.sqrt(len(x))
    assert abs(mean - 1) < 4 * error, f"E[q/p] is {mean:.4f} +- {error:.4f}, not 1"


def _answers(model: Any, x: Tensor, masks: Tensor, case: Case) -> dict[str, Tensor]:
    """Every answer of the model about rows [N, D] and masks [P, 1, D], by name."""
    ways = {
        "conditional_log_prob": (x, masks),
        "log_prob": (x,),
        "log_prob(x, observed)": (x, masks),
        "mean_conditional_log_prob": (x, masks[:, 0]),
        "mean_log_prob": (x,),
    }
    return {
        way: getattr(model, way.split("(")[0])(*given)
        for way, given in ways.items()
        if case.has(way)
    }


def _garbage(case: Case, x: Tensor, observed: Tensor) -> list[Tensor]:
    """Rows that agree with x at observed tokens and have arbitrary values at masked ones."""
    if case.values is None:
        wild = [torch.full_like(x, value) for value in (1e30, -math.inf, math.nan)]
    else:
        values = torch.tensor(case.values).to(x)
        place = (x[..., None] == values).int().argmax(-1)
        wild = [values[(place + 1) % len(values)]] + (
            [] if case.words else [torch.full_like(x, math.nan)]
        )
    return [torch.where(observed, x, other) for other in wild]


def _same(found: Tensor, expected: Tensor, tolerance: float, what: str, *, rtol: float = 0) -> None:
    torch.testing.assert_close(
        found, expected, rtol=rtol, atol=tolerance, msg=lambda message: f"{what}\n{message}"
    )
