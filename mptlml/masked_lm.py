"""Masked language models of Hugging Face transformers as conditional models: log p(x_j | x_R) of tokens.

D counts a text's own tokens. Special tokens frame the text and padding fills a batch; neither is
masked, scored or counted. A network's answers need not belong to one joint distribution; the area
is then the mean over orders of the chain rule, by Jensen's inequality at most the log of their
mixture (`order_gap`).

Curves, areas and orders are those of `score`, which asks `MaskedLM.at_length`. The rest says how a
network is asked: its vocabulary head answers where a token is hidden and nowhere else; a pass takes
so many tokens and no more; rows of several lengths share one where the network does not see
padding, which is tried; ids that are too many (`tokenise` makes them) are read through windows.
"""

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot, pad
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from . import draws, score
from .checks import (
    Sizes,
    check_count,
    check_known,
    check_list,
    check_shapes,
    check_vocabulary,
)
from .curve import ScoreCurve
from .extras import needs
from .memory import at_once
from .protocol import at_masked

BATCH_TOKENS = 1024  # in a pass of several rows: bounds the logits, tokens x vocabulary
SHORT = 128  # tokens: longer texts fill a pass by themselves
PLACES = 12  # tokens of the text that tells whether answers are for their own place
LOCK = Lock()  # one pass at a time: what the head is asked belongs to one pass
NOTHING = -1  # where a row has no token, or none that is asked for
LIMITS = "max_position_embeddings max_sequence_length max_seq_len model_length n_positions".split()
ADVICE = "take an encoder that was trained as a masked language model, such as BERT"


Texts = str | Tensor | Sequence[str | Tensor]  # as a caller may give them


class Rows(NamedTuple):
    """Copies of texts with hidden tokens, long [n, D] each: what is `shown`, and the `true` tokens that are asked for.

    Both hold NOTHING behind the end of a text that is shorter than others, and `true` also where
    nothing is asked.
    """

    shown: Tensor
    true: Tensor


class MaskedLM:
    """A masked language model with its tokenizer, put into evaluation mode.

    model: of transformers, as AutoModelForMaskedLM loads it; tokenizer: the one that it was trained
    with. Runs without gradients (with them while `model.training` is true). batch_tokens: the most
    tokens in a forward pass of several rows, which bounds the memory; results depend on it by
    rounding only. allow_unknown: score the tokenizer's unknown token like any other, instead of
    refusing texts that hold it. max_tokens: the most in a row, special ones included, where neither
    network nor tokenizer says it. mask_token: its spelling or id, where the tokenizer does not say
    it. Raises ValueError for networks that would score wrongly in silence: causal
    ones, those that answer for the next token or at random, another's vocabulary, no vocabulary
    head, no mask token; and for one that cannot be asked about a short text.

    texts, where a method takes them: a list of texts, or of their ids as `encode` made them, or one
    text or its ids, which is a list of one; text: one of these. Raises ValueError
    for others, as `read`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        batch_tokens: int = BATCH_TOKENS,
        allow_unknown: bool = False,
        max_tokens: int | None = None,
        mask_token: str | int | None = None,
    ) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self.batch_tokens = check_count(batch_tokens, "batch_tokens")
        self.allow_unknown = allow_unknown
        self.vocab_size = model.config.vocab_size
        self.mask_id = _mask_id(tokenizer, mask_token, self.vocab_size)
        self.frame = _frame(tokenizer)  # ids before and after every text
        self.max_tokens = _positions(model, tokenizer, max_tokens) - sum(map(len, self.frame))
        self.words = _words(tokenizer, self.vocab_size, self.mask_id)
        self.pads: dict[int, bool] = {}  # what `may_pad` has found out, by length
        if getattr(model.config, "is_encoder_decoder", False):
            raise ValueError(f"{self.kind} is an encoder-decoder model: {ADVICE}")
        try:
            self._check_places()
            self.may_pad(SHORT)
        except (RuntimeError, IndexError, TypeError) as error:
            raise ValueError(f"{self.kind} cannot be asked about a short text: {error}") from error

    @property
    def kind(self) -> str:
        """What messages call the network."""
        return type(self.model).__name__

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        *,
        device: torch.device | str = "cpu",
        local_files_only: bool = False,
        revision: str = "main",
        trust_remote_code: bool = False,
        float32: bool = False,
        **options: Any,
    ) -> "MaskedLM":
        """A model by name or folder, as `AutoModelForMaskedLM` finds it.

        revision: a branch, tag or commit of the hub, which makes a score by name reproducible;
        trust_remote_code: run the code that comes with the model; float32: compute in single
        precision what was saved in half. Raises ValueError for any other kind, and for one that was
        saved without its vocabulary head or tokenizer; OSError where there is no model of this
        name.
        """
        with needs("text"):  # slow to import: only where they are needed
            import transformers
        where: dict[str, Any] = dict(
            local_files_only=local_files_only,
            revision=revision,
            trust_remote_code=trust_remote_code,
        )
        config = transformers.AutoConfig.from_pretrained(name, **where)
        told = trust_remote_code and getattr(config, "auto_map", None) or {}
        kinds = ["AutoModelForMaskedLM", "AutoModel", "AutoModelForCausalLM"]
        # what a network with code of its own can do is tried
        loader = getattr(transformers, min(kinds, key=lambda kind: kind not in told))
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **where)
        with torch.random.fork_rng(devices=[]):  # a missing weight is drawn at random
            model, loaded = loader.from_pretrained(name, output_loading_info=True, **where)
        # buffers, such as ESM's inv_freq in files of transformers 5, are computed
        weights = {key for key, _ in model.named_parameters(remove_duplicate=False)}
        if missing := sorted(weights.intersection(loaded["missing_keys"])):
            raise ValueError(
                f"{name} lacks {len(missing)} weights of {type(model).__name__}, such as "
                f"{missing[0]}, which would be random: "
                "take a model that was saved whole, with its vocabulary head"
            )
        return cls((model.float() if float32 else model).to(device), tokenizer, **options)

    @classmethod
    def random(cls, config: Any, tokenizer: Any, *, seed: int, **options: Any) -> "MaskedLM":
        """A model with fresh weights, drawn from `seed` as `config` says."""
        with needs("text"):
            from transformers import AutoModelForMaskedLM
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = AutoModelForMaskedLM.from_config(copy.deepcopy(config))  # saving writes into it
        return cls(model, tokenizer, **options)

    def encode(self, text: str) -> Tensor:
        """A text's own tokens: ids, long [D]. ValueError: no text, too long, special or unknown tokens in it."""
        ids = self.tokenise(text)
        if not ids:
            raise ValueError(f"the text {text!r} has no tokens: give at least one word")
        self.check_length(len(ids), f"{text[:40]!r}...")
        return torch.tensor(ids)

    def tokenise(self, text: str) -> list[int]:
        """The ids of a text's own tokens, however many. ValueError: no string, special or unknown tokens in it."""
        if not isinstance(text, str):
            raise ValueError(
                f"give one text, a string, got {type(text).__name__}; curves and others take a list"
            )
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids
        unknown = self.tokenizer.unk_token_id
        if ({*self.tokenizer.all_special_ids, self.mask_id} - {unknown}).intersection(ids):
            mask = self.tokenizer.decode(self.mask_id)
            raise ValueError(f"special tokens such as {mask} belong to no text: {text[:40]!r}")
        if unknown in ids and not self.allow_unknown:
            raise ValueError(
                f"the tokenizer does not know token {ids.index(unknown) + 1} of {len(ids)} in "
                f"{text[:40]!r}, and {ids.count(unknown)} in all: "
                "correct the text, or say allow_unknown=True"
            )
        return ids

    def read(self, texts: Texts) -> list[Tensor]:
        """Texts as rows of their ids, long [D_i] each: all methods take them this way.

        Raises ValueError: no text at all, what is none, ids that are not int64 [D] of the vocabulary,
        and as `encode` where a text is a string; ids may name any token, special ones too.
        """
        each = [texts] if isinstance(texts, str | Tensor) else texts
        if not isinstance(each, Sequence) or not each:
            got = f"{type(texts).__name__} {str(texts)[:40]!r}"
            raise ValueError(f"give a text, or a list of at least one, got {got}")
        rows = [text if torch.is_tensor(text) else self.encode(text) for text in each]
        for row in rows:
            if row.ndim != 1 or row.dtype != torch.int64:
                raise ValueError(f"the ids of a text must be [D] of int64, got {row!r}")
            check_vocabulary(row, row == row, self.vocab_size)
        return rows

    def one(self, text: Texts) -> Tensor:
        """The ids of one text, long [D]. Raises ValueError: several, and as `read`."""
        rows = self.read(text)
        if len(rows) > 1:
            raise ValueError(f"give one text, got {len(rows)}")
        return rows[0]

    def blocks(
        self, texts: Iterable[str], num_tokens: int, num_blocks: int | None = None
    ) -> list[Tensor]:
        """Texts run together and cut into rows of `num_tokens` ids; the rest is dropped.

        num_blocks: no more than these, and no text is read that they do not need. Raises
        ValueError: no block of this length, fewer than asked for, or longer than the model takes.
        """
        check_list(texts)
        self.check_length(check_count(num_tokens, "num_tokens"), "blocks")
        least = num_blocks or 1
        ids: list[int] = []
        for text in texts:
            if num_blocks is not None and len(ids) >= num_blocks * num_tokens:
                break
            ids += self.tokenise(text)
        if len(ids) < least * num_tokens:
            raise ValueError(f"{len(ids)} tokens do not make {least} blocks of {num_tokens}")
        whole = torch.tensor(ids).unfold(0, num_tokens, num_tokens)
        return [*whole[:num_blocks]]

    def at_length(self, num_tokens: int) -> "AtLength":
        """The model for rows of `num_tokens` of their own tokens, as `score` takes it: a ConditionalModel."""
        return AtLength(self, num_tokens)

    def curve(
        self, text: Texts, sizes: Sizes | None = None, *, num_masks: int = 1, generator: Generator
    ) -> ScoreCurve:
        """The MPT curve of one text at exact mask sizes (default: 1..D), with the scores of its masks.

        Masks follow from the generator and the text's length.
        """
        ids, seed = self.one(text), draws.seed(generator)
        own = draws.seeded(seed, len(ids), 0)  # as in the book's long runs
        return score.score_curve(
            self.at_length(len(ids)), ids[None].double(), sizes, num_masks=num_masks, generator=own
        )

    def exact_curve(self, text: Texts) -> ScoreCurve:
        """The curve of one text over all of its masks: no noise."""
        ids = self.one(text)
        return score.exact_curve(self.at_length(len(ids)), ids[None].double())

    def pseudo_log_likelihood(self, texts: Texts) -> Tensor:
        """sum_j log p(x_j | all others) = D S(x; 1), nats per text [texts].

        The pseudo-log-likelihood of Besag (1975), the PLL of Salazar et al. (2020).
        """
        return torch.stack([scores.sum() for scores in self.single_scores(texts)])

    @torch.no_grad()
    def single_scores(self, texts: Texts) -> list[Tensor]:
        """log p(x_j | all others) of each token, nats per token: one tensor [D_i] for each text.

        Ids that are too many for the model, as `tokenise` makes them, are read through a window
        around each token.
        """
        rows = self.read(texts)
        widths = [min(len(ids), self.max_tokens) for ids in rows]
        found = dict(self.log_probs(widths, lambda i: self._windows(rows[i])))
        return [found[i] for i in range(len(rows))]

    @torch.no_grad()
    def masked_marginals(self, text: Texts) -> Tensor:
        """log p(x_j = v | all others), nats [D, V]: what the model would have said of every word v there.

        One pass for each place answers for all single mutants: row j, column v minus column x_j
        scores x_j -> v (Meier et al. 2021). Windows as in `single_scores`.
        """
        return self.answers(self._windows(self.one(text)), vocabulary=True).double().cpu()

    @torch.no_grad()
    def chain_rule(self, text: Texts, orders: Tensor) -> Tensor:
        """log p(x_{pi(t)} | x_{pi(t+1:D)}) along orders [Q, D], nats per token [Q, t]: `score.chain_rule`.

        The last token of an order is predicted first, from nothing: left to right is the order D-1,
        ..., 0. Raises ValueError: orders that are no permutations.
        """
        ids, orders = self.one(text), torch.as_tensor(orders)
        return score.chain_rule(self.at_length(len(ids)), ids[None].double(), orders)[:, 0]

    def hiding(self, ids: Tensor, hidden: Tensor) -> Rows:
        """The text ids [D] with the mask token where `hidden` [n, D], and asked there."""
        return Rows(torch.where(hidden, self.mask_id, ids), torch.where(hidden, ids, NOTHING))

    def _windows(self, ids: Tensor) -> Rows:
        """The text ids [D] with one token hidden each, as much around it as the model takes: D rows."""
        place, width = torch.arange(len(ids)), min(len(ids), self.max_tokens)
        first = (place - width // 2).clamp(0, len(ids) - width)
        here = first[:, None] + torch.arange(width)
        return self.hiding(ids[here], here == place[:, None])

    def log_probs(
        self, lengths: Sequence[int], rows: Callable[[int], Rows]
    ) -> Iterator[tuple[int, Tensor]]:
        """Yields (i, log-probabilities of the tokens that rows(i) ask for [places]), shortest texts first; nats.

        lengths: of the rows of each text, which are made when its turn comes: memory is bounded by
        the rows of one text, and passes take rows of several where they fit. float64.
        """
        group: dict[int, Rows] = {}
        places = sorted(range(len(lengths)), key=lengths.__getitem__)
        for i in tqdm(places, "texts", disable=None, delay=3, leave=False):
            new, width = rows(i), lengths[i] + sum(map(len, self.frame))
            count = sum(len(each.true) for each in (new, *group.values()))
            # any member will do: a group of several lengths holds short texts alone
            same = lengths[i] == lengths[min(group, default=i)]
            alike = same or (lengths[i] <= SHORT and self.may_pad(SHORT))
            if group and not (alike and count * width <= self.batch_tokens):
                yield from self._together(group)
                group = {}
            group[i] = new
        yield from self._together(group)

    def _together(self, group: dict[int, Rows]) -> Iterator[tuple[int, Tensor]]:
        shown, true = (
            pad_sequence([row for part in parts for row in part], True, NOTHING)
            for parts in zip(*group.values(), strict=True)
        )
        answer = self.answers(Rows(shown, true)).double().cpu()
        asked = [int((part.true != NOTHING).sum()) for part in group.values()]
        yield from zip(group, answer.split(asked), strict=True)

    def answers(self, rows: Rows, vocabulary: bool = False) -> Tensor:
        """Log-probabilities of the tokens asked for, row by row: [places], or of every word there [places, V]; nats.

        Raises ValueError: NaN among them.
        """
        width = rows.shown.shape[1] + sum(map(len, self.frame))
        few = at_once(self.batch_tokens // width, width * self.vocab_size)
        passes = zip(rows.shown.split(few), rows.true.split(few), strict=True)
        return check_known(torch.cat([self._pass(*some, vocabulary) for some in passes]))

    def _pass(self, shown: Tensor, true: Tensor, vocabulary: bool) -> Tensor:
        """One pass over rows [n, D]: each text between the tokens of its frame, padding behind."""
        before, after = (torch.tensor(ids).long() for ids in self.frame)
        around = len(before), len(after)
        framed = pad(shown, around, value=NOTHING)
        framed[:, : len(before)] = before
        end = (framed != NOTHING).sum(1, keepdim=True)  # of the text, [n, 1]
        framed.scatter_(1, end + torch.arange(len(after)), after.expand(len(shown), -1))
        seen = framed != NOTHING
        framed = framed.where(seen, self.tokenizer.pad_token_id or 0)
        logits = self._logits(framed, seen.long(), pad(true != NOTHING, around))
        if vocabulary:
            return logits.log_softmax(-1)
        own = true[true != NOTHING].to(logits.device)
        return logits.gather(-1, own[:, None])[:, 0] - logits.logsumexp(-1)

    def _logits(self, framed: Tensor, seen: Tensor, asked: Tensor) -> Tensor:
        """Logits [places, V] where `asked` [n, L] is True: the vocabulary head sees no other place.

        framed [n, L]: token ids; seen [n, L]: 1 for a token, 0 for padding.
        """
        device = next(self.model.parameters()).device
        framed, seen, asked = framed.to(device), seen.to(device), asked.to(device)
        takes = inspect.signature(self.model.forward).parameters
        mask = {"attention_mask": seen} if {"attention_mask", "kwargs"} & takes.keys() else {}
        head = getattr(self.model, "get_output_embeddings", lambda: None)()
        gradients = torch.is_grad_enabled() and self.model.training
        with LOCK, torch.set_grad_enabled(gradients):
            hook = (
                nullcontext()
                if head is None
                else head.register_forward_pre_hook(lambda _, inputs: (inputs[0][asked],))
            )
            with hook:
                answer = self.model(framed, **mask)
        logits = getattr(answer, "logits", answer)
        if not torch.is_tensor(logits):
            raise ValueError(f"{self.kind} has no vocabulary head: {ADVICE}")
        if logits.shape[:-1] == asked.shape:  # of a head that does not use its output layer as such
            logits = logits[asked]
        if logits.shape != (asked.sum(), self.vocab_size):
            raise ValueError(f"{self.kind} answers with shape {tuple(logits.shape)}: {ADVICE}")
        return logits if logits.dtype == torch.float64 else logits.float()

    def check_length(self, num_tokens: int, what: str) -> None:
        """Refuse rows or texts of more tokens than the model takes: ValueError."""
        if num_tokens > self.max_tokens:
            raise ValueError(
                f"{num_tokens} tokens are more than the model's {self.max_tokens} ({what}): "
                "shorten the text, or cut texts with blocks()"
            )

    @torch.no_grad()
    def _check_places(self) -> None:
        """ValueError for models that see nothing to the right of a hole, or answer for the next token.

        By where answers change when one of a text's tokens is hidden, [hidden, place].
        """
        text = torch.tensor(self.words[:: -(-len(self.words) // PLACES)][: self.max_tokens])
        count, hidden = len(text), torch.eye(len(text)).bool()[1:]
        shown = torch.cat([text[None], torch.where(hidden, self.mask_id, text)])
        found = self.answers(Rows(shown, text.expand_as(shown)), vocabulary=True)
        found = found.view(count, count, -1)
        moved = (found[1:] - found[0]).abs().sum(-1)
        if not moved.tril().any():
            raise ValueError(
                f"{self.kind} sees nothing to the right of a hole, as a causal model: {ADVICE}"
            )
        early = moved.diagonal() > moved.diagonal(1)
        if count > 4 and early.double().mean() > 0.8:
            raise ValueError(
                f"{self.kind} answers at each place for the next token (shifted logits, as of networks "
                "made of causal ones): give a subclass that moves them by one place"
            )

    @torch.no_grad()
    def may_pad(self, longest: int) -> bool:
        """Whether rows of at most `longest` tokens may end in padding, since the network does not see it.

        The network itself is asked, once about short texts and once for each greater length, as
        some attend in blocks. Raises ValueError: it answers otherwise when it is asked again.
        """
        # dropout draws too: in training what was found of short texts holds
        level = SHORT if self.model.training else max(SHORT, longest)
        if level not in self.pads:
            width = min(level, self.max_tokens)
            whole = torch.tensor((self.words[:3] * width)[:width])
            text = whole[: width // 2 + 1]  # a view: what it hides is hidden in `whole` too
            text[len(text) // 2] = self.mask_id
            padded = pad(text, (0, width - len(text)), value=NOTHING)
            rows = [Rows(row[None], row[None]) for row in (text, padded, whole, whole)]
            alone, among, first, again = map(self.answers, rows)
            precision = torch.finfo(next(self.model.parameters()).dtype).eps ** 0.6
            most = precision * (alone.abs().max() + 1)
            if (first - again).abs().max() > most:
                raise ValueError(
                    f"{self.kind} answers otherwise when it is asked again: it draws at random"
                )
            self.pads[level] = bool((alone - among).abs().max() <= most)
        return self.pads[level]


class AtLength:
    """A MaskedLM for rows of D token ids: the ConditionalModel that `score` and `objectives` ask for.

    A shorter row ends in the tokenizer's padding token, observed. ValueError: more than the model
    takes.
    """

    def __init__(self, lm: MaskedLM, num_tokens: int) -> None:
        lm.check_length(check_count(num_tokens, "num_tokens"), "rows")
        self.lm, self.num_tokens, self.vocab_size = lm, num_tokens, lm.vocab_size

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D]; 0 at observed tokens, NaN where a masked token is NaN.

        x [..., D] and observed [..., D] broadcast. ValueError: shapes that do not fit, unknown
        token ids.
        """
        found = self._answers(x, observed, ~observed)
        answer = found.new_zeros(torch.broadcast_shapes(x.shape, observed.shape))
        return at_masked(answer.masked_scatter(~observed, found), x, observed)

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j = v | x_R), nats per token [..., D, V], also at tokens that are seen."""
        found = self._answers(x, observed, torch.ones_like(observed), vocabulary=True)
        return found.view(*torch.broadcast_shapes(x.shape, observed.shape), self.vocab_size)

    def log_prob_at(self, x: Tensor, observed: Tensor, token: Tensor) -> Tensor:
        """log p(x_j | x_R) of one masked token j = `token` [...] of each row, nats [...]."""
        return self._answers(x, observed, one_hot(token, self.num_tokens).bool()).view(token.shape)

    def _answers(
        self, x: Tensor, observed: Tensor, asked: Tensor, vocabulary: bool = False
    ) -> Tensor:
        """Log-probabilities where `asked`, [places] or [places, V]; float64 if x or the network is."""
        check_shapes(x, observed, self.num_tokens)
        check_vocabulary(x, observed, self.vocab_size)
        ids, seen, asked = (
            part.cpu().reshape(-1, self.num_tokens)
            for part in torch.broadcast_tensors(torch.nan_to_num(x).long(), observed, asked)
        )
        tokens = (ids != self.lm.tokenizer.pad_token_id) | ~seen
        there = tokens.flip(-1).cumsum(-1).flip(-1) > 0  # up to the last token
        if not there.all() and not self.lm.may_pad(self.num_tokens):
            raise ValueError(
                f"{self.lm.kind} sees padding, for it ignores the attention mask: "
                "ask it about rows of one length at a time"
            )
        shown = torch.where(seen, ids, self.lm.mask_id).where(there, NOTHING)
        found = self.lm.answers(Rows(shown, ids.where(asked, NOTHING)), vocabulary)
        return found.to(x.device, x.dtype if x.dtype == torch.float64 else found.dtype)


def spaced_sizes(num_tokens: int, count: int) -> Tensor:
    """At most `count` mask sizes of 1..D, long [S]: all, or most near both ends, for curves bend there."""
    if check_count(count, "count", at_least=2) >= num_tokens:
        return torch.arange(1, num_tokens + 1)
    angle = np.linspace(0, np.pi, count)
    sizes = 1 + (num_tokens - 1) * (1 - np.cos(angle)) / 2
    return torch.from_numpy(np.unique(sizes.round()).astype(int))


def _mask_id(tokenizer: Any, mask_token: str | int | None, size: int) -> int:
    """The id of the mask token, also one given by hand, by its spelling or id. Raises ValueError: none."""
    token = tokenizer.mask_token if mask_token is None else mask_token
    found = token if isinstance(token, int) else tokenizer.get_vocab().get(token, -1)
    if not 0 <= found < size:
        raise ValueError(
            f"the mask token {token!r} is none of the model's {size}: use the tokenizer of a masked "
            "language model, such as BERT's, or name the token by mask_token="
        )
    return found


def _words(tokenizer: Any, size: int, mask_id: int) -> list[int]:
    """All ids but those of special tokens, in order. Raises ValueError: not the words of a model with so many."""
    known = sorted(set(tokenizer.get_vocab().values()))
    words = [word for word in known if word not in {*tokenizer.all_special_ids, mask_id}]
    # a model's number is often rounded up a little
    if len(words) < 2 or known[-1] >= size or size - len(known) > max(128, size // 100):
        raise ValueError(
            f"the tokenizer has {len(words)} words (largest id {known[-1]}), the model {size}: "
            "load both under the same name, and the vocabulary with them"
        )
    return words


def _frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens before and after a text. Raises ValueError: its own cannot be told from them."""
    own, framed = (
        tokenizer("a", add_special_tokens=special).input_ids for special in (False, True)
    )
    start = next((k for k in range(len(framed)) if own and framed[k : k + len(own)] == own), None)
    if start is None:
        raise ValueError(f"the tokenizer frames {own} as {framed}: cannot tell a text's own tokens")
    return framed[:start], framed[start + len(own) :]


def _positions(model: Any, tokenizer: Any, most_tokens: int | None) -> int:
    """Positions that model and tokenizer have, special tokens included, under the names in use."""
    said = [getattr(model.config, name, None) for name in LIMITS]
    most = [number for number in (tokenizer.model_max_length, most_tokens, *said) if number]
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # RoBERTa counts from behind padding
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            most.append(module.num_embeddings - first)
    return min(most)
