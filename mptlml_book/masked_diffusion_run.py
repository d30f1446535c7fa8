"""The long runs behind Chapter 12, about 15 minutes each.

masked_diffusion_orders reads and lets write two of Chapter 11's networks for each seed, those
trained with uniform sizes and at a fixed 15%. Several lines for each network, each a reading with
its standard error over texts, in nats per text:

    strata, chain rule  noise of an area from D passes: strata of sizes, and one random order (over texts, root mean
                        square)
    log p, log q        mean log-probability of what the network writes, in the language and in the network
    writes              KL(q || p): log q - log p of what it writes, given the draws that order the places
    reads               KL(p || q): log p - log q of the language's own texts, likewise

The last four with places at random and the surest places first, `log p` for the surest words too,
with 8 passes and D.

masked_diffusion_passes says how many forward passes the area of one text takes to a standard error
of 1 and of 0.1 nats, for five networks and texts, by each of several ways. Each text is scored once
under MASKS masks of every size; what a way would take follows from these scores: by its variance,
or (`error=`) by drawing REPEATS times from them as the library draws masks, which also tells the
error that came out.
"""

from itertools import chain, product

import numpy as np
import torch
from scipy import stats

from mptlml import chain_rule, draws, random_masks, random_orders
from mptlml.allocation import AreaPlan
from mptlml.protocol import token_log_probs

from . import masked_diffusion as study
from . import real_network
from . import runs as results
from .known_language import language
from .known_language_run import FIRST_SEED, TWO, network, seeds, tuned
from .runs import Table
from .schedules import equal_steps

NUM_SEEDS, NUM_TEXTS, NOISE_TEXTS, NUM_MASKS, NUM_ORDERS = 10, 256, 16, 4, 16
REAL = {"germline gene": "gene 0", "complete chain": "trastuzumab heavy"}
TEXTS = ("exact language", *TWO, *REAL)
READING = "reading", "places", "passes", "value", "error"
MASKS, ORDERS, REPEATS, ERRORS = 24, 24, 1000, (1.0, 0.1)


def orders(scheme, rate, seed):
    """The lines of a network."""
    net, truth, generator = network(scheme, seed), language(), draws.seeded(seed, 3)
    texts = truth.sample(NUM_TEXTS, generator=generator)
    readings = chain(
        deviations(net, texts[:NOISE_TEXTS], generator), ways_to_write(net, truth, texts, generator)
    )
    for reading in readings:
        yield dict(scheme=scheme, rate=rate, seed=seed) | dict(zip(READING, reading, strict=True))


def deviations(net, texts, generator):
    """A READING of each way to an area, without places and error."""
    length = net.num_tokens
    moments = study.score_moments(net, texts, NUM_MASKS, generator=generator)
    along = (
        chain_rule(net, texts, random_orders(length, NUM_ORDERS, generator=generator))
        .sum(-1)
        .double()
    )
    yield "strata", "", length, study.by_size(moments, length, strata=length).mean() ** 0.5, ""
    yield "chain rule", "", length, along.var(0).mean().item() ** 0.5, ""


def ways_to_write(net, truth, texts, generator):
    """Each READING of what the network writes and reads."""
    for places, passes in product(study.PLACES, (8, net.num_tokens)):
        steps = equal_steps(net.num_tokens, passes)
        own, log_q = study.unmask(
            net, steps, places=places, num_rows=NUM_TEXTS, generator=generator
        )
        own_p = truth.log_prob(own)
        found = {"log p": own_p}
        if places != "surest word":
            read = study.unmask(net, steps, texts, places=places, generator=generator)[1]
            found |= {
                "log q": log_q,
                "writes": log_q - own_p,
                "reads": truth.log_prob(texts) - read,
            }
        for reading, value in found.items():
            yield (
                reading,
                places,
                passes,
                value.mean().item(),
                value.std().item() / len(value) ** 0.5,
            )


def text_of(name):
    """The model and the text [1, D] that a name stands for."""
    if name in REAL:
        lm = real_network.load_network().lm
        ids = lm.encode(real_network.scored()[REAL[name]])
        return lm.at_length(len(ids)), ids[None]
    truth = language()
    text = truth.sample(1, generator=draws.seeded(12))
    return network(name, FIRST_SEED) if name in TWO else truth, text


@torch.no_grad()
def score_table(model, text, generator):
    """(1/m) sum_j log p(x_j | x_R) under masks of every size, nats per token [D, masks]; the last has one mask."""
    sizes = torch.arange(1, model.num_tokens + 1).repeat_interleave(MASKS)
    parts = random_masks(model.num_tokens, sizes, generator=generator).split(256)
    found = torch.cat(
        [token_log_probs(model, text[0], part).double().sum(-1) / (~part).sum(-1) for part in parts]
    )
    return found.reshape(-1, MASKS).numpy()


def passes(name):
    """The lines of a text."""
    generator, rng = draws.seeded(12, TEXTS.index(name)), np.random.default_rng(12)
    model, text = text_of(name)
    size, table = model.num_tokens, score_table(model, text, generator)
    deviation = table.std(1, ddof=1)
    along = (
        chain_rule(model, text, random_orders(size, ORDERS, generator=generator)).double().sum(-1)
    )
    moments = study.ScoreMoments(table.mean(1)[None], deviation[None] ** 2)
    spread = 256 * study.by_rate(moments, 256, spread=True).variance[0]
    variance = {
        "sizes spread evenly": size * (deviation**2).sum(),
        "rates spread evenly": spread,
        "orders": size * along.var().item(),
        "noise known": deviation.sum() ** 2,
    }

    def line(error, way, passes, found="", bias="", covered=""):
        return dict(
            text=name,
            tokens=size,
            error=error,
            way=way,
            passes=round(passes),
            found=found,
            bias=bias,
            covered=covered,
        )

    for error in ERRORS:
        for way, value in variance.items():
            yield line(error, way, max(value / error**2, size if way == "orders" else 1))
        plan = AreaPlan([size] * REPEATS, 10**7, error)
        while len((masks := plan.next(generator)).row):
            plan.tell(table[masks.size - 1, rng.integers(MASKS, size=masks.size.shape)])
        found = plan.estimates()
        away = found.mean.numpy() - table.mean(1).sum()
        covered = abs(away) <= stats.t.ppf(0.975, found.dof) * found.stderr.numpy()
        yield line(
            error,
            "error=",
            found.passes.double().mean().item(),
            (away**2).mean() ** 0.5,
            away.mean(),
            covered.mean(),
        )


def networks():
    rates = tuned()
    return [(scheme, rates[scheme], seed) for seed in seeds(NUM_SEEDS) for scheme in TWO]


TABLES = {
    "masked_diffusion_orders": Table(orders, networks),
    "masked_diffusion_passes": Table(passes, lambda: [(name,) for name in TEXTS]),
}


if __name__ == "__main__":
    results.main(TABLES)
