"""Masked language models of Hugging Face transformers, read as conditional models: log p(x_j | x_R) of a text's tokens.

D counts a text's own tokens. Special tokens frame the text and padding fills a batch; neither is masked, scored or
counted. A network's answers need not belong to one joint distribution; the area is then the mean over orders of the
chain rule, which by Jensen's inequality bounds the log of the mixture over orders from below (`order_gap`).
"""

import copy
import math

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from ..checks import check_count, check_finite, check_rate, check_shapes
from ..masks import nested_masks, random_masks
from ..score import score_curve
from .text_curves import RATES, Corpus, RateCurve, TextCurve

BATCH_TOKENS = {"cpu": 1024, "cuda": 2**14}  # tokens in a forward pass: bounds the logits, tokens x vocabulary
CORRUPTIONS = ("mask", "80/10/10")


class MaskedLM:
    """A masked language model with its tokenizer, put into evaluation mode.

    Runs in the model's own precision on a CPU, under bfloat16 autocast on a GPU, without gradients (with them while
    `model.training` is true). Raises ValueError, saying what to do: a causal or encoder-decoder model, no vocabulary
    head, a tokenizer without a mask token, vocabularies that do not match.
    """

    def __init__(self, model, tokenizer, *, batch_tokens=None):
        self.model, self.tokenizer = model.eval(), tokenizer
        self.device = next(model.parameters()).device
        self.batch_tokens = check_count(batch_tokens or BATCH_TOKENS.get(self.device.type, 1024), "batch_tokens")
        self.vocab_size = model.get_input_embeddings().num_embeddings
        _check_vocabularies(self)
        self.prefix, self.suffix = _frame(tokenizer)
        self.max_tokens = _longest(model, tokenizer) - len(self.prefix) - len(self.suffix)
        _check_bidirectional(self)

    @classmethod
    def from_pretrained(cls, name, *, device="cpu", local_files_only=False, **options):
        """A model by name or folder, as `AutoModelForMaskedLM` finds it. Raises ValueError for any other kind."""
        from transformers import AutoModelForMaskedLM, AutoTokenizer  # slow to import: only where it is needed

        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local_files_only)
        model = AutoModelForMaskedLM.from_pretrained(name, local_files_only=local_files_only)
        return cls(model.to(device), tokenizer, **options)

    @classmethod
    def random(cls, config, tokenizer, *, seed, **options):
        """Fresh weights drawn as the configuration says, from `seed`; the global generator stays as it is."""
        from transformers import AutoModelForMaskedLM

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = AutoModelForMaskedLM.from_config(copy.deepcopy(config))  # saving a model writes into its own
        return cls(model, tokenizer, **options)

    def encode(self, text):
        """A text's own tokens: ids, long [D]. Raises ValueError: an empty text, one too long, special tokens in it."""
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids
        if not ids:
            raise ValueError(f"the text {text!r} has no tokens: give at least one word")
        if len(ids) > self.max_tokens:
            raise ValueError(f"{len(ids)} tokens are more than the model's {self.max_tokens} ({text[:40]!r}...): "
                             "shorten the text, or cut a corpus with blocks()")
        self._check_own(ids, text)
        return torch.tensor(ids)

    def sentences(self, texts):
        """A Corpus whose rows are the texts, one each. Raises ValueError as `encode`, or for no text at all."""
        if isinstance(texts, str) or not len(texts):
            raise ValueError("give a list of at least one text")
        return Corpus([self.encode(text) for text in texts], sum(len(text.split()) for text in texts))

    def blocks(self, texts, num_tokens, num_blocks=None):
        """A Corpus of texts run together and cut into rows of `num_tokens`; the rest is dropped.

        Raises ValueError: no block of this length, fewer blocks than asked for, rows longer than the model takes.
        """
        if check_count(num_tokens, "num_tokens") > self.max_tokens:
            raise ValueError(f"blocks of {num_tokens} tokens are longer than the model's {self.max_tokens}")
        parts, words, enough = [], 0, math.inf if num_blocks is None else check_count(num_blocks, "num_blocks")
        for text in texts:
            if sum(map(len, parts)) >= enough * num_tokens:
                break
            parts.append(self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids)
            words += len(text.split())
        ids = torch.tensor([token for part in parts for token in part])
        self._check_own(ids.tolist(), "the corpus")
        count = min(enough, len(ids) // num_tokens)
        if count < 1 or count < (num_blocks or 1):
            raise ValueError(f"{len(ids)} tokens do not make {num_blocks or 1} blocks of {num_tokens}")
        rows = list(ids[: count * num_tokens].view(count, num_tokens))
        return Corpus(rows, words * count * num_tokens / len(ids))

    def _check_own(self, ids, what):
        special = set(self.tokenizer.all_special_ids) - {self.tokenizer.unk_token_id}
        if special.intersection(ids):
            raise ValueError(f"special tokens such as {self.tokenizer.mask_token} belong to no text, found in {what!r}")

    def at_length(self, num_tokens, *, corruption="mask", generator=None):
        """The model for rows of `num_tokens` of their own tokens, as a ConditionalModel: `score` then does the rest."""
        return AtLength(self, num_tokens, corruption, generator)

    def curve(self, text, sizes=None, *, num_masks=1, generator):
        """The MPT curve of one text at exact mask sizes: a TextCurve (sizes: all, or see `spaced_sizes`)."""
        ids = self.encode(text)
        rows = self.at_length(len(ids))
        curve = score_curve(rows, ids[None].double(), sizes, num_masks=num_masks, generator=generator)
        return TextCurve(**vars(curve), num_words=len(text.split()))

    def pseudo_log_likelihood(self, texts):
        """sum_j log p(x_j | all others) = D S(x; 1), nats a text [texts]: Besag's, and the PLL of Salazar et al."""
        rows = self.sentences(texts).rows
        masked = [torch.eye(len(ids), dtype=torch.bool) for ids in rows]
        return torch.stack([answer.sum() for answer in self._answers(rows, masked, masked, progress="PLL")])

    def chain_rule(self, text, orders):
        """log p(x_{M(t)} | x_{M(t+1:D)}) along orders [Q, D], nats [Q, t], as `score.chain_rule` has it.

        The last token of an order is predicted first, from nothing: left to right is the order D-1, ..., 0. The head
        answers for the one token asked at each step.
        """
        ids = self.encode(text)
        orders = torch.as_tensor(orders)
        if orders.ndim != 2 or not torch.equal(orders.sort(-1).values, torch.arange(len(ids)).expand(len(orders), -1)):
            raise ValueError(f"orders must be permutations [Q, {len(ids)}], got shape {tuple(orders.shape)}")
        masked = ~nested_masks(orders).flatten(0, 1)  # [Q t, D]
        asked = torch.nn.functional.one_hot(orders.flatten(), len(ids)).bool()
        return self._answers([ids], [masked], [asked], progress="orders")[0].sum(-1).view(orders.shape)

    def rate_curve(self, corpus, rates=RATES, *, num_masks=1, corruption="mask", generator):
        """Mean log-probability of a masked token at each rate, nats a token, over the rows of a Corpus: a RateCurve.

        At rate r every row hides round(r D) of its D tokens, at least one, drawn afresh for each rate and mask.
        Raises ValueError: rates out of (0, 1] or not increasing, num_masks below 1.
        """
        rates = np.array([check_rate(rate) for rate in rates], dtype=float)
        if len(rates) < 1 or (np.diff(rates) <= 0).any():
            raise ValueError(f"rates must increase, got {rates.tolist()}")
        check_count(num_masks, "num_masks")
        scores = []
        for rate in tqdm(rates, "rates", disable=None, leave=False):
            masked = []
            for ids in corpus.rows:
                size = max(1, round(rate * len(ids)))
                masked.append(~random_masks(len(ids), [size] * num_masks, generator=generator))
            answers = self._answers(corpus.rows, masked, masked, corruption, generator)
            scores.append([float(a.sum() / m.sum()) for a, m in zip(answers, masked, strict=True)])
        return RateCurve(rates, np.array(scores), np.array([len(ids) for ids in corpus.rows]), corpus.num_words)

    @torch.no_grad()
    def _answers(self, rows, masked, asked, corruption="mask", generator=None, progress=None):
        """For each row [D] and its masks [P, D], the log-probabilities at `asked`, 0 elsewhere: float64 [P, D] each."""
        jobs = sorted(((i, p) for i, m in enumerate(masked) for p in range(len(m))), key=lambda job: len(rows[job[0]]))
        out = [torch.zeros(m.shape, dtype=torch.float64) for m in masked]
        bar = tqdm(total=len(jobs), desc=progress, disable=None if progress else True, leave=False)
        while jobs:
            count = self._batch_size(len(rows[jobs[0][0]]))
            while count > 1 and count > self._batch_size(len(rows[jobs[min(count, len(jobs)) - 1][0]])):
                count -= 1  # the longest row of the batch sets its width
            batch, jobs = jobs[:count], jobs[count:]
            ids = pad_sequence([rows[i] for i, _ in batch], batch_first=True)
            hide, ask = (pad_sequence([m[i][p] for i, p in batch], batch_first=True) for m in (masked, asked))
            lengths = torch.tensor([len(rows[i]) for i, _ in batch])
            answer = self._forward(ids, hide, ask, lengths, corruption, generator).cpu()
            for (i, p), values in zip(batch, answer, strict=True):
                out[i][p] = values[: len(rows[i])]
            bar.update(len(batch))
        bar.close()
        return out

    def _batch_size(self, num_tokens):
        return max(1, self.batch_tokens // (num_tokens + len(self.prefix) + len(self.suffix)))

    def _forward(self, ids, hide, ask, lengths, corruption, generator):
        """One pass: ids, hide, ask [B, L], padded on the right beyond `lengths` [B]; log-probabilities [B, L]."""
        given = corrupt(ids, hide, self.tokenizer.mask_token_id, self.vocab_size, corruption, generator)
        place = torch.arange(ids.shape[1] + len(self.suffix)) - lengths[:, None]  # 0 where the suffix begins
        given = torch.nn.functional.pad(given, (0, len(self.suffix)), value=0)
        for k, token in enumerate(self.suffix):
            given = torch.where(place == k, token, given)
        pad = self.tokenizer.pad_token_id
        given = torch.where(place >= len(self.suffix), 0 if pad is None else pad, given)
        given = torch.cat([torch.tensor(self.prefix, dtype=torch.long).expand(len(ids), -1), given], 1)
        seen = torch.nn.functional.pad(place < len(self.suffix), (len(self.prefix), 0), value=True)
        where = torch.nn.functional.pad(ask, (len(self.prefix), len(self.suffix)))
        target = ids[ask].to(self.device)
        logits = self._logits(given, seen, where)
        found = torch.cat([part.gather(-1, wanted[:, None])[:, 0] - part.logsumexp(-1)  # a part at a time: less memory
                           for part, wanted in zip(logits.split(256), target.split(256), strict=True)])
        return torch.zeros(ids.shape, dtype=found.dtype, device=self.device).masked_scatter(ask.to(self.device), found)

    def _logits(self, given, seen, where):
        """Logits [n, V] at the n true places of `where` [B, L] alone: the vocabulary head never sees the others."""
        where = where.to(self.device)
        head = self.model.get_output_embeddings()
        hook = head.register_forward_pre_hook(lambda module, inputs: (inputs[0][where],)) if head is not None else None
        try:
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.model.training), \
                    torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                logits = self.model(given.to(self.device), attention_mask=seen.long().to(self.device)).logits
        finally:
            if hook is not None:
                hook.remove()
        logits = logits[where] if logits.ndim == 3 else logits  # a head that does not use its output layer as such
        return logits if logits.dtype == torch.float64 else logits.float()


class AtLength:
    """A MaskedLM at one length D: the ConditionalModel that `score` and `objectives` ask for.

    Token ids come as floating numbers, exact up to 2^24 in float32. corruption: "mask" replaces every masked token by
    the mask token, as the theorem needs; "80/10/10" is BERT's rule, see `corrupt`, and needs a generator.
    """

    def __init__(self, lm, num_tokens, corruption="mask", generator=None):
        if check_count(num_tokens, "num_tokens") > lm.max_tokens:
            raise ValueError(f"rows of {num_tokens} tokens are longer than the model's {lm.max_tokens}")
        _check_corruption(corruption, generator)
        self.lm, self.num_tokens, self.corruption, self.generator = lm, num_tokens, corruption, generator

    def conditional_log_prob(self, x, observed):
        """log p(x_j | x_R), nats [..., D], in x's dtype; 0 at observed tokens, NaN where a masked token is NaN."""
        check_shapes(x, observed, self.num_tokens)
        check_finite(x, observed)
        x, observed = torch.broadcast_tensors(x, observed)
        unknown = x.isnan()
        ids = torch.where(unknown, 0.0, x)
        wrong = (ids != ids.floor()) | (ids < 0) | (ids >= self.lm.vocab_size)
        if wrong.any():
            raise ValueError(f"token ids must be whole numbers below {self.lm.vocab_size}, got {ids[wrong][0]:g}")
        ids, masked = (t.reshape(-1, self.num_tokens).cpu() for t in (ids.long(), ~observed))
        busy = masked.any(-1)  # a row with nothing masked asks for nothing
        step = self.lm._batch_size(self.num_tokens)
        out = torch.zeros(ids.shape, dtype=x.dtype, device=x.device)
        if busy.any():
            parts = [self.lm._forward(row, hide, hide, torch.full((len(row),), self.num_tokens), self.corruption,
                                      self.generator)
                     for row, hide in zip(ids[busy].split(step), masked[busy].split(step), strict=True)]
            out = out.index_put((busy.nonzero()[:, 0].to(x.device),), torch.cat(parts).to(x.device, x.dtype))
        return torch.where(unknown & ~observed, math.nan, out.view(x.shape))


def corrupt(ids, masked, mask_id, vocab_size, rule="mask", generator=None):
    """What the network is shown: ids [...] with the masked ones replaced. Raises ValueError for an unknown rule.

    "mask": each by the mask token. "80/10/10": 80% by the mask token, 10% by a random token, 10% stay as they are.
    """
    _check_corruption(rule, generator)
    shown = torch.where(masked, mask_id, ids)
    if rule == "mask":
        return shown
    fate = torch.rand(ids.shape, generator=generator)
    other = torch.randint(vocab_size, ids.shape, generator=generator)
    return torch.where(masked & (fate >= 0.8), torch.where(fate < 0.9, other, ids), shown)


def _check_corruption(rule, generator):
    if rule not in CORRUPTIONS:
        raise ValueError(f"corruption must be one of {CORRUPTIONS}, got {rule!r}")
    if rule != "mask" and generator is None:
        raise ValueError(f"corruption {rule!r} draws at random: pass generator=")


def _frame(tokenizer):
    """The special tokens before and after a text: two lists of ids."""
    own = tokenizer("a", add_special_tokens=False).input_ids
    framed = tokenizer("a").input_ids
    for start in range(len(framed) - len(own) + 1):
        if framed[start: start + len(own)] == own:
            return framed[:start], framed[start + len(own):]
    raise ValueError(f"the tokenizer frames {own} as {framed}: cannot tell a text's own tokens")


def _longest(model, tokenizer):
    """Positions that model and tokenizer have, special tokens included."""
    most = [tokenizer.model_max_length]
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            skipped = 0 if module.padding_idx is None else module.padding_idx + 1  # RoBERTa counts from behind padding
            most.append(module.num_embeddings - skipped)
    return min(most + [getattr(model.config, "max_position_embeddings", None) or most[0]])


def _check_vocabularies(lm):
    """Refuse a tokenizer and a model that were not made for each other, as far as one can see. Raises ValueError."""
    tokenizer, size = lm.tokenizer, lm.vocab_size
    if tokenizer.mask_token_id is None:
        raise ValueError("the tokenizer has no mask token: use that of a masked language model, such as BERT's")
    largest, pad = max(tokenizer.get_vocab().values()), getattr(lm.model.config, "pad_token_id", None)
    if largest >= size or size - len(tokenizer) > max(128, size // 100):  # vocabularies are often rounded up a little
        raise ValueError(f"the tokenizer has {len(tokenizer)} tokens (largest id {largest}), the model {size}: "
                         "load both under the same name")
    if None not in (pad, tokenizer.pad_token_id) and pad != tokenizer.pad_token_id:
        raise ValueError(f"the model pads with token {pad}, the tokenizer with {tokenizer.pad_token_id}: "
                         "load both under the same name")


def _check_bidirectional(lm):
    """Refuse models that cannot see to the right of a hole, or have no vocabulary head. Raises ValueError."""
    advice = "load a masked language model with AutoModelForMaskedLM"
    if getattr(lm.model.config, "is_encoder_decoder", False):
        raise ValueError(f"{type(lm.model).__name__} is an encoder-decoder model: {advice}")
    special = set(lm.tokenizer.all_special_ids)
    one, other = [token for token in lm.tokenizer.get_vocab().values() if token not in special][:2]
    given = torch.tensor([[lm.tokenizer.mask_token_id, one, right] for right in (one, other)])
    first = torch.tensor([[True, False, False]] * 2)
    with torch.no_grad():
        logits = lm._logits(given, torch.ones_like(given), first)
    if logits.ndim != 2 or logits.shape[-1] != lm.vocab_size:
        raise ValueError(f"{type(lm.model).__name__} answers with shape {tuple(logits.shape)}, not with logits of "
                         f"{lm.vocab_size} tokens: {advice}")
    if torch.equal(logits[0], logits[1]):
        raise ValueError(f"{type(lm.model).__name__} does not see to the right of a hole, as a causal model: {advice}")
