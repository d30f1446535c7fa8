"""The stored table of passes in Chapter 12: python -m benchmarks passes

Writes book/data/masked_diffusion_passes.csv: how many forward passes the area of one text takes to a standard error of
1 and of 0.1 nats, for five networks and texts, by each of several ways. Each text is scored once under MASKS masks of
every size; what a way would take follows from these scores: by its variance, or (`error=`) by drawing REPEATS times
from them as the library draws masks, which also tells the error that came out. About 15 minutes.
"""

import numpy as np
import torch
from scipy import stats

from mptlml import chain_rule, draws, random_masks, random_orders
from mptlml.allocation import areas
from mptlml.protocol import ask
from mptlml_book.studies import masked_diffusion as study
from mptlml_book.studies import real_network
from mptlml_book.studies.known_language import language, train_or_load

from .known_language import FIRST_SEED, NETWORKS, NUM_STEPS, SMALL, TWO, tuned
from .results import write_results

TEXTS = ("exact language", *TWO, "germline gene", "complete chain")
MASKS, ORDERS, REPEATS, ERRORS = 24, 24, 1000, (1.0, 0.1)
FIELDS = ("text", "tokens", "error", "way", "passes", "found", "bias", "covered")


def text_of(name):
    """The model and the text [1, D] that a name stands for."""
    if name in ("germline gene", "complete chain"):
        lm = real_network.load_network().lm
        ids = lm.encode(real_network.scored()["gene 0" if name == "germline gene" else "trastuzumab heavy"])
        return lm.at_length(len(ids)), ids[None]
    truth = language()
    text = truth.sample(1, generator=draws.seeded(12))
    if name in TWO:
        truth = train_or_load(NETWORKS, name, seed=FIRST_SEED, num_steps=NUM_STEPS, learning_rate=tuned("own")[name],
                                 **SMALL)
    return truth, text


@torch.no_grad()
def scores(model, text, generator):
    """(1/m) sum_j log p(x_j | x_R) under masks of every size, nats per token [D, masks]; the last has one mask."""
    sizes = torch.arange(1, model.num_tokens + 1).repeat_interleave(MASKS)
    parts = random_masks(model.num_tokens, sizes, generator=generator).split(256)
    found = torch.cat([ask(model, text[0], part).double().sum(-1) / (~part).sum(-1) for part in parts])
    return found.reshape(-1, MASKS).numpy()


def run(name):
    """The lines of a text."""
    generator = draws.seeded(12, TEXTS.index(name))
    model, text = text_of(name)
    size, table = model.num_tokens, scores(model, text, generator)
    noise = table.std(1, ddof=1)
    along = chain_rule(model, text, random_orders(size, ORDERS, generator=generator)).double().sum(-1)
    moments = table.mean(1)[None], noise[None] ** 2
    spread = 256 * study.by_rate(moments, 256, spread=True)[1][0]
    variance = {"sizes spread evenly": size * (noise**2).sum(), "rates spread evenly": spread,
                "orders": size * along.var().item(), "noise known": noise.sum() ** 2}
    rng = np.random.default_rng(12)
    for error in ERRORS:
        for way, value in variance.items():
            least = size if way == "orders" else 1
            yield name, size, error, way, f"{max(value / error**2, least):.0f}", "", "", ""
        found = areas(lambda _, sizes: table[sizes - 1, rng.integers(MASKS, size=sizes.shape)],
                      np.full(REPEATS, size), 10**7, error, generator)
        away = found.mean - table.mean(1).sum()
        covered = abs(away) <= stats.t.ppf(0.975, found.dof) * found.stderr
        yield (name, size, error, "error=", f"{found.draws.mean():.0f}", f"{(away**2).mean() ** 0.5:.4f}",
               f"{away.mean():.4f}", f"{covered.mean():.3f}")


def main():
    write_results("masked_diffusion_passes", "passes", FIELDS, run, [(name,) for name in TEXTS])
