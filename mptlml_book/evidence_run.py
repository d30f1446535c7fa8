"""The long runs behind Chapter 15: networks that answer for Bayesian models, against the exact evidence.

    coins       two priors, uniform sizes and a fixed 15%, two lengths, five seeds
    regression  polynomials of degree 0 to 4, and one of unknown width; for degree 2 also a fixed 15%, four
                times the steps, and twice the width
    choosing    which of five degrees each score picks, over 500 data sets
    places      the same choices by networks that know places, two hidden layers each
    sets        the first seed's areas of each of these data sets, and how far its orders differ
    widths      which width of the prior the area picks for groups of data sets
    nested      nested sampling of the same evidence (python -m pip install dynesty)

Networks are kept in _build/networks. Numbers are nats per data set unless their name says
otherwise.
"""

import time

import numpy as np
import torch

from mptlml import draws
from mptlml.score import chain_rule, estimate_area

from . import evidence as study
from . import runs as results
from .runs import Table

SEEDS = range(11, 16)
NUM_SETS, NUM_ORDERS, GROUP, NUM_GROUPS = 500, 8, 20, 30
NUM_NESTED = 20
N = study.NUM_OBSERVATIONS
PRIORS = {"Beta(1, 1)": (1.0, 1.0), "Beta(20, 20)": (20.0, 20.0)}
VARIANTS = {  # of the network for degree 2
    "uniform sizes": {},
    "fixed 15%": dict(size=study.FIXED_SIZE),
    "four times the steps": dict(num_steps=4 * study.NUM_STEPS),
    "twice the width": dict(width=96, learning_rate=5e-3),
}
UNKNOWN = "4, width unknown"


# Coins ------------------------------------------------------------------------------------------------------


def coins(prior, scheme, num_steps, seed):
    """The errors of a network over all data sets there are, one for each number of heads."""
    truth = study.Coins(*PRIORS[prior])
    size = study.FIXED_SIZE if scheme == "fixed 15%" else None
    net = results.kept(
        f"evidence coins {prior} {scheme} {num_steps} {seed}",
        lambda: study.train(truth, seed=seed, num_steps=num_steps, size=size, distance="none")[0],
    )
    areas = areas_by_count(study.by_count(net))
    exact = areas_by_count(study.coins_by_count(truth))
    weight = np.exp(exact + study.log_binomial(N))  # probability of each number of heads
    error = areas - exact
    mean = weight @ error
    yield dict(
        prior=prior,
        scheme=scheme,
        num_steps=num_steps,
        seed=seed,
        error=mean,
        spread=np.sqrt(weight @ (error - mean) ** 2),
        areas=areas.tolist(),
    )


def areas_by_count(chance):
    return np.array([study.curve_of_count(chance, heads).sum() for heads in range(N + 1)])


def coins_units():
    return [
        (prior, scheme, num_steps, seed)
        for seed in SEEDS
        for prior in PRIORS
        for scheme, num_steps in (
            ("uniform sizes", 400),
            ("uniform sizes", 1600),
            ("fixed 15%", 400),
        )
    ]


# Regression -------------------------------------------------------------------------------------------------


def truth_of(model):
    return study.regression(4, None) if model == UNKNOWN else study.regression(int(model))


def network(model, variant, seed):
    options = VARIANTS[variant]
    return results.kept(
        f"evidence regression {model} {variant} {seed}",
        lambda: study.train(truth_of(model), seed=seed, **options)[0],
    )


def along_orders(net, x, seed):
    """Areas of rows [n, N] along orders of each row's own, the same for all networks: a RowEstimates."""
    return estimate_area(
        net, x.long(), NUM_ORDERS * N, by_orders=True, generator=draws.seeded(seed, 5)
    )


@torch.no_grad()
def regression(model, variant, seed):
    """A line for each reading of a network: its error and what that varies by over data sets."""
    truth, net = truth_of(model), network(model, variant, seed)
    x = truth.sample(NUM_SETS, generator=draws.seeded(seed, 4))
    about = dict(model=model, variant=variant, seed=seed)
    yield about | reading("area", "its own", net, truth, x, seed)
    yield (
        about
        | dict(reading="leave one out", data="its own")
        | moments(study.leave_one_out(net, x.long()) - study.leave_one_out(truth, x))
    )
    if model != "2":
        return
    exact = truth.log_prob(x)
    ids, generator = x.long(), draws.seeded(seed, 6)
    order = torch.arange(N - 1, -1, -1)[None]
    masks = estimate_area(net, ids, N, generator=generator).mean
    one = study.one_order(net, ids, generator)
    for name, value in (
        ("left to right", chain_rule(net, ids, order).sum(-1)[0]),
        ("one order", one),
        ("a mask per size", masks),
    ):
        yield about | dict(reading=name, data="its own") | moments(value.double() - exact)
    for name, rows in study.unlike(200, generator=generator).items():
        yield about | reading("area", name, net, truth, rows, seed)


def reading(name, data, net, truth, x, seed):
    area = along_orders(net, x, seed)
    spread = area.stderr.double().mean().item() * NUM_ORDERS**0.5
    return dict(reading=name, data=data) | moments(area.mean.double() - truth.log_prob(x), spread)


def moments(error, spread=""):
    """Mean error over data sets [n], its standard error, its root mean square, and the spread over orders."""
    error = error.detach().double()
    return dict(
        error=error.mean().item(),
        stderr=(error.std() / len(error) ** 0.5).item(),
        rms=error.square().mean().sqrt().item(),
        orders=spread,
    )


def regression_units():
    plain = [(model, "uniform sizes") for model in [*map(str, study.DEGREES), UNKNOWN]]
    varied = [("2", variant) for variant in list(VARIANTS)[1:]]
    return [(*unit, seed) for seed in SEEDS for unit in plain + varied]


# Choosing a degree ------------------------------------------------------------------------------------------


def data_sets(seed):
    """500 data sets [n, N], a hundred from each degree, and their degrees [n]."""
    each, generator = NUM_SETS // len(study.DEGREES), draws.seeded(seed, 7)
    rows = [study.regression(degree).sample(each, generator=generator) for degree in study.DEGREES]
    return torch.cat(rows), torch.arange(len(rows)).repeat_interleave(each)


def scores_by_name(seed, *wanted):
    """{score: [n, degrees]} of the data sets of a seed, of all scores or of those that are named."""
    x, _ = data_sets(seed)
    exact = [study.regression(degree) for degree in study.DEGREES]
    nets = [network(str(degree), "uniform sizes", seed) for degree in study.DEGREES]
    ways = {
        "exact evidence": (exact, lambda model: model.log_prob(x)),
        "area": (nets, lambda net: along_orders(net, x, seed).mean),
        "exact leave one out": (exact, lambda model: study.leave_one_out(model, x)),
        "left end": (nets, lambda net: study.leave_one_out(net, x.long())),
        "BIC": (study.DEGREES, lambda degree: study.information_criterion(degree, x)),
    }
    return {
        name: torch.stack([score(model).detach().double() for model in models], -1)
        for name, (models, score) in ways.items()
        if name in (wanted or ways)
    }


@torch.no_grad()
def choosing(seed):
    _, truth = data_sets(seed)
    found = scores_by_name(seed)
    for name, score in found.items():
        yield dict(seed=seed, score=name) | picks(score, truth, found["exact evidence"])


def picks(score, truth, exact):
    """What comes of choosing by scores [n, degrees], where `truth` [n] is true."""
    picked, posterior = score.argmax(-1), score.softmax(-1)
    return dict(
        right=(picked == truth).double().mean().item(),
        as_exact=(picked == exact.argmax(-1)).double().mean().item(),
        log_score=posterior.gather(-1, truth[:, None]).log().mean().item(),
        sure=posterior.max(-1).values.mean().item(),
        degree=picked.double().mean().item(),
        by_degree=[(picked == degree).double().mean().item() for degree in study.DEGREES],
    )


@torch.no_grad()
def places(seed):
    """The same choices by networks that know places, and their errors on the data sets of each degree itself."""
    x, truth = data_sets(seed)
    exact = scores_by_name(seed, "exact evidence")["exact evidence"]
    nets = [
        results.kept(
            f"evidence perceptron {degree} {seed}",
            lambda degree=degree: study.train_perceptron(study.regression(degree), seed=seed),
        )
        for degree in study.DEGREES
    ]
    area = torch.stack([along_orders(net, x, seed).mean.double() for net in nets], -1)
    left = torch.stack([study.leave_one_out(net, x.long()).double() for net in nets], -1)
    own = [(area - exact)[truth == degree, degree] for degree in study.DEGREES]
    for name, score in ("area", area), ("left end", left):
        yield (
            dict(seed=seed, score=name)
            | picks(score, truth, exact)
            | dict(
                error=[error.mean().item() for error in own],
                rms=[error.square().mean().sqrt().item() for error in own],
                factors=(score[:, 2] - score[:, 1]).tolist(),
            )
        )


@torch.no_grad()
def sets():
    """Evidence of each data set, its area, and the standard deviation of its orders, by degree."""
    seed = SEEDS[0]
    x, truth = data_sets(seed)
    exact = scores_by_name(seed, "exact evidence")["exact evidence"]
    read = [
        along_orders(network(str(degree), "uniform sizes", seed), x, seed)
        for degree in study.DEGREES
    ]
    area = torch.stack([found.mean for found in read], -1)
    spread = torch.stack([found.stderr for found in read], -1) * NUM_ORDERS**0.5
    for row, degree, *columns in zip(x, truth, exact, area, spread, strict=True):
        answers = "".join(str(int(value)) for value in row)
        evidence, mean, deviation = (column.tolist() for column in columns)
        yield dict(
            answers=f"x{answers}", degree=int(degree), exact=evidence, area=mean, spread=deviation
        )


# The width of a prior ---------------------------------------------------------------------------------------


@torch.no_grad()
def widths(seed):
    """For groups of 20 data sets with one true width, the width that the exact evidence picks, and the area."""
    net = results.kept(
        f"evidence widths {seed}",
        lambda: study.train_told(2, seed=seed, num_steps=3 * study.NUM_STEPS),
    )
    told = [study.Told(net, which) for which in range(len(study.WIDTHS))]
    exact = [study.regression(2, width) for width in study.WIDTHS]
    generator = draws.seeded(seed, 8)
    for group in range(NUM_GROUPS):
        which = group % len(study.WIDTHS)
        x = exact[which].sample(GROUP, generator=generator)
        evidence = [model.log_prob(x).sum().item() for model in exact]
        area = [
            estimate_area(each, x.long(), 2 * N, by_orders=True, generator=draws.seeded(seed, 9))
            .mean.sum()
            .item()
            for each in told
        ]
        yield dict(
            seed=seed,
            group=group,
            width=study.WIDTHS[which],
            by_evidence=study.WIDTHS[int(np.argmax(evidence))],
            by_area=study.WIDTHS[int(np.argmax(area))],
            evidence=evidence,
            area=area,
        )


# The field's own tool ---------------------------------------------------------------------------------------


@torch.no_grad()
def nested(row):
    """One data set of the model whose prior has an unknown width: its evidence by three ways, and seconds."""
    import dynesty

    truth = truth_of(UNKNOWN)
    x = truth.sample(NUM_NESTED, generator=draws.seeded(10))[row : row + 1]
    sign, basis = np.where(x[0].numpy() > 0, 1, -1), study.design(4)

    def log_likelihood(point):
        return -np.logaddexp(0, -sign * (basis @ point[:5])).sum()

    def from_prior(uniform):
        normal = study.norm.ppf(uniform)
        return np.append(study.WIDTH * 2 ** normal[5] * normal[:5], normal[5])

    began = time.perf_counter()
    sampler = dynesty.NestedSampler(
        log_likelihood, from_prior, 6, rstate=np.random.default_rng(row)
    )
    sampler.run_nested(print_progress=False)
    seconds = time.perf_counter() - began
    line = dict(
        row=row,
        exact=study.regression(4, None, 17).log_prob(x).item(),
        nested=sampler.results.logz[-1],
        nested_error=sampler.results.logzerr[-1],
        nested_seconds=seconds,
    )
    net = network(UNKNOWN, "uniform sizes", SEEDS[0])
    began = time.perf_counter()
    area = along_orders(net, x, row)
    line |= dict(
        area=area.mean.item(),
        area_error=area.stderr.item(),
        area_seconds=time.perf_counter() - began,
    )
    began = time.perf_counter()  # the whole training, by twenty of its steps
    with torch.enable_grad():
        study.train(truth, seed=row, num_steps=20)
    seconds = (time.perf_counter() - began) * study.NUM_STEPS / 20
    yield line | dict(training_seconds=seconds)


TABLES = {
    "evidence_coins": Table(coins, coins_units),
    "evidence_regression": Table(regression, regression_units),
    "evidence_choosing": Table(choosing, lambda: [(seed,) for seed in SEEDS]),
    "evidence_places": Table(places, lambda: [(seed,) for seed in SEEDS]),
    "evidence_sets": Table(sets, lambda: [()]),
    "evidence_widths": Table(widths, lambda: [(seed,) for seed in SEEDS]),
    "evidence_nested": Table(nested, lambda: [(row,) for row in range(NUM_NESTED)]),
}


if __name__ == "__main__":
    results.main(TABLES)
