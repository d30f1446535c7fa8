"""Masked language models of Hugging Face transformers, read as conditional models: log p(x_j | x_R) of a text's tokens.

D counts a text's own tokens. Special tokens frame the text and padding fills a batch; neither is masked, scored or
counted. A network's answers need not belong to one joint distribution; the area is then the mean over orders of the
chain rule, which by Jensen's inequality bounds the log of the mixture over orders from below (`order_gap`).
"""

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot, pad
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from .. import draws
from ..checks import check_count, check_rate, check_shapes, check_vocabulary
from ..extras import needs
from ..masks import nested_masks, random_masks
from ..protocol import at_masked
from ..score import score_curve
from .text_curves import RATES, Corpus, RateCurve, TextCurve

BATCH_TOKENS = {"cpu": 1024, "cuda": 2**14}  # tokens in a forward pass: bounds the logits, tokens x vocabulary
CORRUPTIONS = ("mask", "80/10/10")


class MaskedLM:
    """A masked language model with its tokenizer, put into evaluation mode.

    model: of transformers, as AutoModelForMaskedLM loads it; tokenizer: the one that it was trained with. Runs in the
    model's own precision on a CPU, under bfloat16 autocast on a GPU, without gradients (with them while
    `model.training` is true). batch_tokens: the most tokens in a forward pass; results depend on it by rounding only.
    Raises ValueError, which says what to do: a causal or encoder-decoder model, no vocabulary head, a tokenizer without
    a mask token, vocabularies that do not match.
    """

    def __init__(self, model: Any, tokenizer: Any, *, batch_tokens: int | None = None) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self.device = next(model.parameters()).device
        default = BATCH_TOKENS["cuda" if self.device.type == "cuda" else "cpu"]
        self.batch_tokens = check_count(default if batch_tokens is None else batch_tokens, "batch_tokens")
        self.vocab_size = model.get_input_embeddings().num_embeddings
        _check_vocabularies(self)
        own, framed = (tokenizer("a", add_special_tokens=special).input_ids for special in (False, True))
        start = framed.index(own[0])
        self.prefix, self.suffix = framed[:start], framed[start + len(own):]  # the special tokens around a text
        self.max_tokens = _longest(model, tokenizer) - len(self.prefix) - len(self.suffix)
        _check_bidirectional(self)

    @classmethod
    def from_pretrained(cls, name: str, *, device: torch.device | str = "cpu", local_files_only: bool = False,
                        **options: Any) -> "MaskedLM":
        """A model by name or folder, as `AutoModelForMaskedLM` finds it. Raises ValueError for any other kind."""
        with needs("text"):
            from transformers import AutoModelForMaskedLM, AutoTokenizer  # slow to import: only where it is needed
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local_files_only)
        model = AutoModelForMaskedLM.from_pretrained(name, local_files_only=local_files_only)
        return cls(model.to(device), tokenizer, **options)

    @classmethod
    def random(cls, config: Any, tokenizer: Any, *, seed: int, **options: Any) -> "MaskedLM":
        """A model with fresh weights, drawn from `seed` as `config` says; the global generator stays as it is."""
        with needs("text"):
            from transformers import AutoModelForMaskedLM
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = AutoModelForMaskedLM.from_config(copy.deepcopy(config))  # saving a model writes into its own
        return cls(model, tokenizer, **options)

    def encode(self, text: str) -> Tensor:
        """A text's own tokens: ids, long [D]. Raises ValueError: an empty text, one too long, special tokens in it."""
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids
        if not ids:
            raise ValueError(f"the text {text!r} has no tokens: give at least one word")
        if len(ids) > self.max_tokens:
            raise ValueError(f"{len(ids)} tokens are more than the model's {self.max_tokens} ({text[:40]!r}...): "
                             "shorten the text, or cut a corpus with blocks()")
        self._check_own(ids, text)
        return torch.tensor(ids)

    def sentences(self, texts: Sequence[str]) -> Corpus:
        """A Corpus whose rows are the texts, one each. Raises ValueError as `encode`, or for no text at all."""
        if isinstance(texts, str) or not len(texts):
            raise ValueError("give a list of at least one text")
        return Corpus([self.encode(text) for text in texts], sum(len(text.split()) for text in texts))

    def blocks(self, texts: Iterable[str], num_tokens: int, num_blocks: int | None = None) -> Corpus:
        """A Corpus of texts run together and cut into rows of `num_tokens`; the rest is dropped.

        Raises ValueError: no block of this length, fewer blocks than asked for, rows longer than the model takes.
        """
        if check_count(num_tokens, "num_tokens") > self.max_tokens:
            raise ValueError(f"blocks of {num_tokens} tokens are longer than the model's {self.max_tokens}")
        enough = math.inf if num_blocks is None else check_count(num_blocks, "num_blocks") * num_tokens
        ids: list[int] = []
        words = 0
        for text in texts:
            if len(ids) >= enough:
                break
            ids += self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids
            words += len(text.split())
        self._check_own(ids, "the corpus")
        count = len(ids) // num_tokens if num_blocks is None else min(num_blocks, len(ids) // num_tokens)
        if count < (num_blocks or 1):
            raise ValueError(f"{len(ids)} tokens do not make {num_blocks or 1} blocks of {num_tokens}")
        rows = torch.tensor(ids[: count * num_tokens]).view(count, num_tokens)
        return Corpus(list(rows), words * count * num_tokens / len(ids))

    def _check_own(self, ids: list[int], what: str) -> None:
        special = set(self.tokenizer.all_special_ids) - {self.tokenizer.unk_token_id}
        if special.intersection(ids):
            raise ValueError(f"special tokens such as {self.tokenizer.mask_token} belong to no text, found in {what!r}")

    def at_length(self, num_tokens: int) -> "AtLength":
        """The model for rows of `num_tokens` of their own tokens: a ConditionalModel, which `score` can work on."""
        return AtLength(self, num_tokens)

    def curve(self, text: str, sizes: Sequence[int] | Tensor | None = None, *, num_masks: int = 1,
              generator: Generator) -> TextCurve:
        """The MPT curve of one text at exact mask sizes: a TextCurve (sizes: all, or see `spaced_sizes`)."""
        ids = self.encode(text)
        rows = self.at_length(len(ids))
        curve = score_curve(rows, ids[None].double(), sizes, num_masks=num_masks, generator=generator)
        return TextCurve(**vars(curve), num_words=len(text.split()))

    @torch.no_grad()
    def pseudo_log_likelihood(self, texts: Sequence[str]) -> Tensor:
        """sum_j log p(x_j | all others) = D S(x; 1), nats per text [texts].

        The pseudo-log-likelihood of Besag (1975), the PLL of Salazar et al. (2020). Raises ValueError as `sentences`.
        """
        rows = self.sentences(texts).rows
        single = {length: torch.eye(length, dtype=torch.bool) for length in set(map(len, rows))}
        masked = [single[len(ids)] for ids in rows]
        return torch.stack([answer.sum() for answer in self._answers(rows, masked, masked)])

    @torch.no_grad()
    def chain_rule(self, text: str, orders: Tensor) -> Tensor:
        """log p(x_{M(t)} | x_{M(t+1:D)}) along orders [Q, D], nats per token [Q, t], as `score.chain_rule` has it.

        The last token of an order is predicted first, from nothing: left to right is the order D-1, ..., 0. The head
        answers for the one token asked at each step. Raises ValueError: orders that are no permutations of the tokens.
        """
        ids = self.encode(text)
        orders = torch.as_tensor(orders).cpu()
        if orders.ndim != 2 or not torch.equal(orders.sort(-1).values, torch.arange(len(ids)).expand(len(orders), -1)):
            raise ValueError(f"orders must be permutations [Q, {len(ids)}], got shape {tuple(orders.shape)}")
        masked = ~nested_masks(orders).flatten(0, 1)  # [Q t, D]
        asked = one_hot(orders.flatten(), len(ids)).bool()
        return self._answers([ids], [masked], [asked])[0].view(orders.shape)

    @torch.no_grad()
    def rate_curve(self, corpus: Corpus, rates: Sequence[float] = RATES, *, num_masks: int = 1,
                   corruption: str = "mask", generator: Generator) -> RateCurve:
        """Mean log-probability of a masked token at each rate, nats per token, over the rows of a Corpus: a RateCurve.

        At rate r every row hides round(r D) of its D tokens, at least one, drawn afresh for each rate and mask.
        corruption: "mask" replaces each by the mask token, as the theorem needs; "80/10/10" is BERT's rule: 80% by the
        mask token, 10% by a random token, 10% stay as they are (Devlin et al. 2019, Sec. 3.1). Raises ValueError: rates
        out of (0, 1] or not increasing, num_masks below 1, another corruption.
        """
        rates = [check_rate(rate) for rate in rates]
        if len(rates) < 1 or (np.diff(rates) <= 0).any():
            raise ValueError(f"rates must increase, got {rates}")
        check_count(num_masks, "num_masks")
        if corruption not in CORRUPTIONS:
            raise ValueError(f"corruption must be one of {CORRUPTIONS}, got {corruption!r}")
        scores = []
        for rate in tqdm(rates, "rates", disable=None, leave=False):
            sizes = [[max(1, round(rate * len(ids)))] * num_masks for ids in corpus.rows]
            masked = [~random_masks(len(ids), size, generator=generator).to(ids.device)
                      for ids, size in zip(corpus.rows, sizes, strict=True)]
            answers = self._answers(corpus.rows, masked, masked, generator if corruption == "80/10/10" else None)
            scores.append([float(answer.mean()) for answer in answers])
        lengths = np.array([len(ids) for ids in corpus.rows])
        return RateCurve(np.array(rates, dtype=float), np.array(scores), lengths, corpus.num_words)

    def _answers(self, rows: list[Tensor], masked: list[Tensor], asked: list[Tensor],
                 bert_rule: Generator | None = None) -> list[Tensor]:
        """For each row [D], the log-probabilities where its `asked` [P, D] is True, in that order: float64 [places].

        bert_rule: draws what BERT's rule shows at masked tokens, in the order of the rows and their masks, whatever the
        batches; without it they show the mask token.
        """
        mask_id = self.tokenizer.mask_token_id
        put = [torch.full_like(ids[:1], mask_id).expand_as(hide) if bert_rule is None else
               draws.bert_rule(ids.expand_as(hide), mask_id, self.vocab_size, bert_rule)
               for ids, hide in zip(rows, masked, strict=True)]
        jobs = sorted(((i, p) for i, m in enumerate(masked) for p in range(len(m))), key=lambda job: len(rows[job[0]]))
        found = [[Tensor()] * len(m) for m in masked]
        begin = 0
        with tqdm(total=len(jobs), desc="passes", disable=None, delay=3, leave=False) as bar:
            while begin < len(jobs):
                batch = jobs[begin: begin + self._batch_size(rows[jobs[begin][0]])]
                while len(batch) > self._batch_size(rows[batch[-1][0]]):
                    batch.pop()  # the longest row of a batch sets its width
                shown = [torch.where(masked[i][p], put[i][p], rows[i]) for i, p in batch]
                ask = [asked[i][p] for i, p in batch]
                answer = self._forward(shown, [rows[i] for i, _ in batch], ask).double().cpu()
                for (i, p), values in zip(batch, answer.split([int(places.sum()) for places in ask]), strict=True):
                    found[i][p] = values
                begin += len(batch)
                bar.update(len(batch))
        return [torch.cat(values) for values in found]

    def _batch_size(self, row: Tensor) -> int:
        return max(1, self.batch_tokens // (len(row) + len(self.prefix) + len(self.suffix)))

    def _forward(self, shown: list[Tensor], ids: list[Tensor], asked: list[Tensor]) -> Tensor:
        """One pass over a batch of rows: tokens shown, true tokens and places asked, [D] each row; D may differ.

        Returns the log-probabilities of the true tokens at the places asked, row by row: nats per token [places].
        """
        prefix, suffix = (torch.tensor(part, dtype=torch.long) for part in (self.prefix, self.suffix))
        framed = [torch.cat([prefix, row, suffix]) for row in shown]
        given = pad_sequence(framed, batch_first=True, padding_value=self.tokenizer.pad_token_id or 0)
        seen = pad_sequence([torch.ones_like(row) for row in framed], batch_first=True)
        where = pad_sequence([pad(places, (len(prefix), len(suffix))) for places in asked], batch_first=True)
        target = torch.cat([row[places] for row, places in zip(ids, asked, strict=True)]).to(self.device)
        logits = self._logits(given, seen, where)
        return torch.cat([part.gather(-1, wanted[:, None])[:, 0] - part.logsumexp(-1)  # a part at a time: less memory
                          for part, wanted in zip(logits.split(256), target.split(256), strict=True)])

    def _logits(self, given: Tensor, seen: Tensor, where: Tensor) -> Tensor:
        """Logits [places, V] where `where` [B, L] is True, and only there: the vocabulary head sees no other place.

        given [B, L]: token ids; seen [B, L]: 1 for a token, 0 for padding.
        """
        where = where.to(self.device)
        head = self.model.get_output_embeddings()
        hook = head.register_forward_pre_hook(lambda module, inputs: (inputs[0][where],))
        try:
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.model.training), \
                    torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                logits = self.model(given.to(self.device), attention_mask=seen.to(self.device)).logits
        finally:
            hook.remove()
        logits = logits[where] if logits.ndim == 3 else logits  # a head that does not use its output layer as such
        return logits if logits.dtype == torch.float64 else logits.float()


class AtLength:
    """A MaskedLM for rows of D tokens: the ConditionalModel that `score` and `objectives` ask for.

    Token ids come as floating numbers, exact up to 2^24 in float32. Raises ValueError: more than the model takes.
    """

    def __init__(self, lm: MaskedLM, num_tokens: int) -> None:
        if check_count(num_tokens, "num_tokens") > lm.max_tokens:
            raise ValueError(f"rows of {num_tokens} tokens are longer than the model's {lm.max_tokens}")
        self.lm, self.num_tokens = lm, num_tokens

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D], in x's dtype; 0 at observed tokens, NaN where a masked one is NaN.

        x [..., D] and observed [..., D] broadcast. Raises ValueError: shapes that do not fit, unknown token ids.
        """
        check_shapes(x, observed, self.num_tokens)
        check_vocabulary(x, observed, self.lm.vocab_size)
        x, observed = torch.broadcast_tensors(x, observed)
        answer = torch.zeros_like(x)
        if x.numel():
            ids, masked = (t.reshape(-1, self.num_tokens).cpu() for t in (torch.nan_to_num(x).long(), ~observed))
            each = list(masked[:, None])
            found = torch.cat(self.lm._answers(list(ids), each, each))
            answer = answer.masked_scatter(~observed, found.to(x.device, x.dtype))
        return at_masked(answer, x, observed)


def _longest(model: Any, tokenizer: Any) -> int:
    """Positions that model and tokenizer have, special tokens included."""
    most = [tokenizer.model_max_length]
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            skipped = 0 if module.padding_idx is None else module.padding_idx + 1  # RoBERTa counts from behind padding
            most.append(module.num_embeddings - skipped)
    return min(most + [getattr(model.config, "max_position_embeddings", None) or most[0]])


def _check_vocabularies(lm: MaskedLM) -> None:
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


def _check_bidirectional(lm: MaskedLM) -> None:
    """Refuse models that cannot see to the right of a hole, or have no vocabulary head. Raises ValueError."""
    advice = "load a masked language model with AutoModelForMaskedLM"
    if getattr(lm.model.config, "is_encoder_decoder", False):
        raise ValueError(f"{type(lm.model).__name__} is an encoder-decoder model: {advice}")
    if lm.model.get_output_embeddings() is None:
        raise ValueError(f"{type(lm.model).__name__} has no vocabulary head: {advice}")
    special = set(lm.tokenizer.all_special_ids)
    one, other = [token for token in lm.tokenizer.get_vocab().values() if token not in special][:2]
    given = torch.tensor([[lm.tokenizer.mask_token_id, one, right] for right in (one, other)])
    first = torch.tensor([[True, False, False]] * 2)
    with torch.no_grad():
        logits = lm._logits(given, torch.ones_like(given), first)
    if torch.equal(logits[0], logits[1]):
        raise ValueError(f"{type(lm.model).__name__} does not see to the right of a hole, as a causal model: {advice}")
