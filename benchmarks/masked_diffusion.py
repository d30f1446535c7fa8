"""The long run behind Chapter 12: python -m benchmarks masked_diffusion [SEEDS]

Reads and lets write two of Chapter 11's networks for each seed, those trained with uniform sizes and at a
fixed 15%, and writes book/data/masked_diffusion_orders.csv: several lines for each network, each a reading
with its standard error over texts, in nats per text. SEEDS: how many seeds (default: 10). Networks are those
of `known_language schemes`, from _build/known_language where they have been trained. About 15 minutes in all,
the training included.

    strata, chain rule  noise of an area from D passes: strata of sizes, and one random order (over texts, root mean
                        square)
    log p, log q        mean log-probability of what the network writes, in the language and in the network
    writes              KL(q || p): log q - log p of what it writes, given the draws that order the places
    reads               KL(p || q): log p - log q of the language's own texts, likewise

The last four with places at random and the surest places first, `log p` for the surest words too, with 8 passes and D.
"""

from mptlml import chain_rule, draws, random_orders
from mptlml_book.studies.known_language import language, train_or_load
from mptlml_book.studies.masked_diffusion import PLACES, by_size, score_moments, unmask
from mptlml_book.studies.schedules import equal_steps

from .known_language import FIRST_SEED, NETWORKS, NUM_STEPS, SMALL, TWO, tuned
from .results import write_results

NUM_TEXTS, NOISE_TEXTS, NUM_MASKS, NUM_ORDERS = 256, 16, 4, 16
FIELDS = ("scheme", "rate", "seed", "reading", "places", "passes", "value", "error")


def units(num_seeds):
    """The arguments of `run` for each network; seeds outside, so that what is done first is complete."""
    rates = tuned("own")
    return [(scheme, rates[scheme], seed) for seed in range(FIRST_SEED, FIRST_SEED + num_seeds) for scheme in TWO]


def noise(net, texts, generator):
    """Standard deviation of an area from D passes by strata and by one order, nats: reading and value of each."""
    moments = score_moments(net, texts, NUM_MASKS, generator=generator)
    orders = random_orders(net.num_tokens, NUM_ORDERS, generator=generator)
    chain = chain_rule(net, texts, orders).sum(-1).double()
    yield "strata", by_size(moments, net.num_tokens, strata=net.num_tokens).mean() ** 0.5
    yield "chain rule", chain.var(0).mean().item() ** 0.5


def run(scheme, rate, seed):
    """The lines of a network."""
    net = train_or_load(NETWORKS, scheme, seed=seed, num_steps=NUM_STEPS, learning_rate=rate, **SMALL)
    truth, generator = language(), draws.seeded(seed, 3)
    texts = truth.sample(NUM_TEXTS, generator=generator)
    log_p, about = truth.log_prob(texts), (scheme, rate, seed)
    for reading, value in noise(net, texts[:NOISE_TEXTS], generator):
        yield *about, reading, "", net.num_tokens, f"{value:.4f}", ""
    for places in PLACES:
        for passes in (8, net.num_tokens):
            steps = equal_steps(net.num_tokens, passes)
            own, log_q = unmask(net, steps, places=places, num_rows=NUM_TEXTS, generator=generator)
            own_p = truth.log_prob(own)
            found = {"log p": own_p}
            if places != "surest word":
                read = unmask(net, steps, texts, places=places, generator=generator)[1]
                found |= {"log q": log_q, "writes": log_q - own_p, "reads": log_p - read}
            for reading, value in found.items():
                error = value.std() / len(value) ** 0.5
                yield *about, reading, places, passes, f"{value.mean():.4f}", f"{error:.4f}"


def main(num_seeds=10):
    write_results("masked_diffusion_orders", "masked_diffusion", FIELDS, run, units(int(num_seeds)))
