"""The long runs behind Chapter 9.

deep_vae trains each scheme of `mptlml_book.deep_vae` as PLAN says. A line per network and
step: the objective (mean of the 50 steps before; at step 0, of the first 25), the estimated log
marginal likelihood of the same 100 training and 100 held-out images in nats per image, the share of
these images whose effective sample size is below 10, the CPU seconds of the training so far, and,
where the long runs on DETAILED end, the estimate of each of the training images and of all 500
held-out ones. All of it takes about an hour of one core.

deep_vae_annealed holds the estimate against a slower one that uses neither encoder nor peaks nor a
proposal, for networks of seed 11 on MNIST, after as many steps as the page trains and after all:
log p(x) of eight held-out images both ways, in nats per image. That takes a few minutes.
"""

import copy
import math
import time

import numpy as np
import torch

from mptlml.draws import multinomial, rand, randn

from . import deep_vae as study
from . import runs as results
from .deep_vae import LONG_RUN, SCORED, images, mean_lml, train
from .importance import tempered
from .runs import Table

SEEDS, MORE, DETAILED = (11, 12, 13), (14, 15), "mnist"
PAGE = 300  # steps of the networks that the page trains itself
BOTH, LONG = ("elbo", "masking"), (0, 300, 600, 1200, 1800, 2400, LONG_RUN)
PLAN = (  # data, noise held, the steps that make a line, the last one ending the run, seeds, schemes
    ("mnist", "learned", LONG, SEEDS + MORE, BOTH),
    ("fashion-mnist", "learned", LONG, SEEDS, BOTH),
    ("mnist", 1.0, (600,), SEEDS, ("elbo", *study.HELD)),
    ("mnist", "learned", (study.SHORT_RUN,), SEEDS, (*BOTH, *study.VARIANTS)),
)


def lines(data, noise, steps, scheme, seed):
    """The lines of one training, one for each of the steps."""
    rows, held_out, _ = images(data)
    began = time.process_time()
    track = {"network": lambda vae: (copy.deepcopy(vae), time.process_time() - began)}
    _, history = train(
        scheme,
        rows,
        seed=seed,
        num_steps=steps[-1],
        noise=None if noise == "learned" else noise,
        track=track,
        track_every=math.gcd(*steps),
    )
    for step, (vae, seconds) in zip(history.at, history.tracked["network"], strict=True):
        if step in steps:
            window = (
                history.objective[:25] if step == 0 else history.objective[max(0, step - 50) : step]
            )
            (train_score, first), (held_score, second) = (
                mean_lml(vae, x[:SCORED]) for x in (rows, held_out)
            )
            each = []
            if data == DETAILED and step == LONG_RUN:
                others = [mean_lml(vae, part)[0] for part in held_out[SCORED:].split(SCORED)]
                each = [
                    round(score, 1)
                    for score in torch.cat([train_score, held_score, *others]).tolist()
                ]
            yield dict(
                data=data,
                noise=noise,
                scheme=scheme,
                num_steps=steps[-1],
                seed=seed,
                step=step,
                objective=np.mean(window),
                train=train_score.mean().item(),
                held_out=held_score.mean().item(),
                low=(torch.cat([first, second]) < 10).double().mean().item(),
                seconds=round(seconds),
                images=each,
            )


def metropolis_step(vae, x, z, log_likelihood, warmth, root, generator):
    """z [S, N, K] and log p(x | z) after a step towards p(z) p(x | z)^warmth, of `root` times normal numbers."""
    proposed = z + (root @ randn(z.shape, z, generator)[..., None]).squeeze(-1)
    value = vae.token_log_prob(x, proposed).sum(-1)
    gain = warmth * (value - log_likelihood) + 0.5 * (z.square() - proposed.square()).sum(-1)
    accept = rand(gain.shape, x, generator).log() < gain
    return torch.where(accept[..., None], proposed, z), torch.where(accept, value, log_likelihood)


@torch.no_grad()
def annealed_log_prob(vae, x, *, generator, num_draws=64, num_moves=5):
    """log p(x), nats per row [N], of rows x [N, D], by draws that move from the prior to the posterior of z.

    The target of each row's draws is p(z) p(x | z)^b, with an inverse temperature b that rises from
    0 to 1. Each rise halves the effective sample size; the draws are then resampled by weight and
    make `num_moves` Metropolis steps.
    """
    vae, x, total = vae.condensed(x)
    warmth = torch.zeros_like(total)  # b
    z = randn((num_draws, len(x), vae.num_latents), x, generator)
    log_likelihood = vae.token_log_prob(x, z).sum(-1)  # log p(x | z) [S, N]
    while (warmth < 1).any():
        left = 1 - warmth
        rise = left * tempered(left * log_likelihood, num_draws / 2)
        rise = torch.where(rise > 0.999 * left, left, rise)  # the last step takes all that is left
        warmth = torch.where(rise == left, 1.0, warmth + rise)
        log_weight = rise * log_likelihood
        total = total + log_weight.logsumexp(0) - math.log(num_draws)
        chosen = multinomial(log_weight.softmax(0).T, num_draws, generator).T  # [S, N]
        z, log_likelihood = (
            z.gather(0, chosen[..., None].expand_as(z)),
            log_likelihood.gather(0, chosen),
        )
        apart = z - z.mean(0)
        covariance = torch.einsum("sni,snj->nij", apart, apart) / num_draws
        root = torch.linalg.cholesky(covariance + 1e-6 * torch.eye(z.shape[-1]).to(z))
        # best for a normal density (Roberts, Gelman & Gilks 1997)
        step = 2.4 / math.sqrt(z.shape[-1]) * root
        for _ in range(num_moves):
            z, log_likelihood = metropolis_step(vae, x, z, log_likelihood, warmth, step, generator)
    return total


def both_ways(scheme, steps):
    """The lines of one network: log p(x) of eight held-out images by annealing, and by the fitted proposal."""
    rows, held_out, _ = images(DETAILED)
    vae, _ = train(scheme, rows, seed=SEEDS[0], stop=steps)
    walk = torch.Generator().manual_seed(5)
    slow = annealed_log_prob(vae, held_out[:8], generator=walk, num_draws=256, num_moves=20)
    fitted, _ = mean_lml(vae, held_out[:40], 1000)
    for number, pair in enumerate(zip(slow.tolist(), fitted.tolist(), strict=False)):
        yield dict(scheme=scheme, steps=steps, image=number, annealed=pair[0], fitted=pair[1])


TABLES = {
    "deep_vae": Table(
        lines,
        lambda: [
            (*run, scheme, seed)
            for *run, seeds, schemes in PLAN
            for seed in seeds
            for scheme in schemes
        ],
        lambda: [part for data in ("mnist", "fashion-mnist") for part in images(data)[2]],
    ),
    "deep_vae_annealed": Table(
        both_ways,
        lambda: [(scheme, steps) for steps in (PAGE, LONG_RUN) for scheme in BOTH],
        lambda: images(DETAILED)[2],
    ),
}


if __name__ == "__main__":
    results.main(TABLES)
