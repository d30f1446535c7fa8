"""Masked language models of Hugging Face transformers as conditional models: log p(x_j | x_R) of tokens.

D counts a text's own tokens. Special tokens frame the text and padding fills a batch; neither is
masked, scored or counted. A network's answers need not belong to one joint distribution; the area
is then the mean over orders of the chain rule, by Jensen's inequality at most the log of their
mixture (`order_gap`).
"""

import copy
import dataclasses
import math
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from . import draws, score
from .allocation import AreaPlan, Masks
from .checks import (
    Sizes,
    check_choice,
    check_count,
    check_list,
    check_shapes,
    check_sizes,
    check_vocabulary,
)
from .curve import RowEstimates, ScoreCurve
from .extras import needs
from .masks import random_masks
from .passes import NO_TOKEN, Network, Request, Rows
from .protocol import at_masked
from .text_curves import Corpus, TextCurve, Texts, spaced_sizes  # noqa: F401

CORRUPTIONS = ("mask", "80/10/10")
PROBE_SECONDS = 3
LATER = ("none", "word", "all")  # which later tokens are hidden beside the one that is predicted


def _hub_answers() -> bool:
    """Whether the hub can be reached, which transformers would find out by many trials."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        urllib.request.urlopen(constants.ENDPOINT, timeout=PROBE_SECONDS).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


class TokenScores(NamedTuple):
    """The tokens of a text, as its tokenizer spells them, and a score of each: nats [D]."""

    tokens: list[str]
    scores: Tensor


class MaskedLM:
    """A masked language model with its tokenizer, put into evaluation mode.

    model: of transformers, as AutoModelForMaskedLM loads it, or in DistributedDataParallel;
    tokenizer: the one that it was trained with. Runs without gradients (with them while
    `model.training` is true). batch_tokens: the most tokens in a forward pass of several rows,
    which bounds the memory; results depend on it by rounding only. dtype: the model's own
    precision, or that of autocast, such as torch.bfloat16; what comes out is float32 at least.
    allow_unknown: score the tokenizer's unknown token like any other, instead of refusing texts
    that hold it. spaced: the tokenizer reads a text letter by letter, with blanks between, as those
    of many proteins want it. mask_token: its spelling or id, where the tokenizer does not say it.
    Raises ValueError, which says what to do: a causal or encoder-decoder model, no vocabulary head,
    no mask token or vocabulary, vocabularies that do not match.

    texts, where a method takes them: a list of texts, or of their ids as `encode` made them, or a
    Corpus, or one text or its ids, which is a list of one; text: one of these. Raises ValueError
    for others, as `read`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        batch_tokens: int | None = None,
        dtype: torch.dtype | None = None,
        allow_unknown: bool = False,
        spaced: bool = False,
        mask_token: str | int | None = None,
    ) -> None:
        self.network = Network.checked(model, tokenizer, mask_token, batch_tokens, dtype)
        self.model, self.tokenizer = self.network.model, tokenizer
        self.allow_unknown, self.spaced = allow_unknown, spaced

    @property
    def max_tokens(self) -> int:
        """The most tokens of a text that the model takes."""
        return self.network.max_tokens

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        *,
        device: torch.device | str = "cpu",
        local_files_only: bool | None = None,
        revision: str = "main",
        subfolder: str = "",
        trust_remote_code: bool = False,
        float32: bool = False,
        **options: Any,
    ) -> "MaskedLM":
        """A model by name or folder, as `AutoModelForMaskedLM` finds it.

        local_files_only: by default, where the hub does not answer within three seconds; revision:
        a branch, tag or commit of the hub, which makes a score by name reproducible;
        trust_remote_code: run the code that comes with the model; float32: compute in single
        precision what was saved in half. Raises ValueError for any other kind, and for one that was
        saved without its vocabulary head or tokenizer; OSError where there is no model of this
        name.
        """
        with needs("text"):  # slow to import: only where they are needed
            from transformers import (
                MODEL_FOR_MASKED_LM_MAPPING,
                AutoConfig,
                AutoModel,
                AutoModelForCausalLM,
                AutoModelForMaskedLM,
                AutoTokenizer,
            )
        if local_files_only is None:
            local_files_only = Path(name).is_dir() or not _hub_answers()
        where: dict[str, Any] = dict(
            local_files_only=local_files_only,
            revision=revision,
            subfolder=subfolder,
            trust_remote_code=trust_remote_code,
        )
        config = AutoConfig.from_pretrained(name, **where)
        told = getattr(config, "auto_map", None) or {} if trust_remote_code else {}
        # what it can do is tried
        classes: list[Any] = [AutoModelForMaskedLM, AutoModel, AutoModelForCausalLM]
        own = [kind for kind in classes if kind.__name__ in told]
        if type(config) not in MODEL_FOR_MASKED_LM_MAPPING and not own:
            raise ValueError(
                f"{name} is a {config.model_type} model, and not one of the masked language "
                "models that AutoModelForMaskedLM loads"
            )
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, **where)
        except Exception as error:  # of all kinds, where files are missing
            raise ValueError(f"{name} has no tokenizer that can be read: {error}") from error
        with torch.random.fork_rng(devices=[]):  # a missing weight is drawn at random
            kind: Any = own[0] if own else AutoModelForMaskedLM
            model, loaded = kind.from_pretrained(name, output_loading_info=True, **where)
        # buffers, such as ESM's inv_freq in files of transformers 5, are computed
        weights = {key for key, _ in model.named_parameters(remove_duplicate=False)}
        if missing := sorted(weights.intersection(loaded["missing_keys"])):
            raise ValueError(
                f"{name} lacks {len(missing)} weights of {type(model).__name__}, such as "
                f"{missing[0]}, which would be random: "
                "take a model that was saved whole, with its vocabulary head"
            )
        if float32:
            model = model.float()
        if model.dtype in (torch.float16, torch.bfloat16):
            warnings.warn(
                f"{name} computes in {str(model.dtype).removeprefix('torch.')}, as it was saved: "
                "float32=True takes single precision",
                stacklevel=2,
            )
        return cls(model.to(device), tokenizer, **options)

    @classmethod
    def random(cls, config: Any, tokenizer: Any, *, seed: int, **options: Any) -> "MaskedLM":
        """A model with fresh weights, drawn from `seed` as `config` says."""
        with needs("text"):
            from transformers import AutoModelForMaskedLM
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = AutoModelForMaskedLM.from_config(copy.deepcopy(config))  # saving writes into it
        return cls(model, tokenizer, **options)

    def encode(self, text: str, *, truncate: bool = False, windows: bool = False) -> Tensor:
        """A text's own tokens: ids, long [D]. ValueError: no text, too long, special or unknown tokens in it.

        truncate: a text that is too long gives as many of its tokens as the model takes; windows:
        all of them.
        """
        ids = self.tokenise(text)
        if windows and ids:
            return torch.tensor(ids)
        if not ids:
            raise ValueError(f"the text {text!r} has no tokens: give at least one word")
        if len(ids) > self.max_tokens and not truncate:
            raise ValueError(
                f"{len(ids)} tokens are more than the model's {self.max_tokens} "
                f"({text[:40]!r}...): "
                "shorten the text, say truncate=True, or cut a corpus with blocks()"
            )
        return torch.tensor(ids[: self.max_tokens])

    def read(self, texts: Texts) -> Corpus:
        """Texts as rows of their ids, a Corpus: all methods take them this way.

        Raises ValueError: no text at all, what is none, and as `encode` and `Corpus`.
        """
        if isinstance(texts, Corpus):
            return texts
        each = [texts] if isinstance(texts, str | Tensor) else texts
        if not isinstance(each, Sequence) or not each:
            got = f"{type(texts).__name__} {str(texts)[:40]!r}"
            raise ValueError(f"give a text, or a list of at least one, got {got}")
        ids = [text if torch.is_tensor(text) else self.encode(text) for text in each]
        return Corpus(ids, None if any(map(torch.is_tensor, each)) else [*map(str, each)])

    def _one(self, text: Texts) -> Corpus:
        """The same of one text. Raises ValueError: several."""
        corpus = self.read(text)
        if len(corpus.rows) > 1:
            raise ValueError(f"give one text, got {len(corpus.rows)}")
        return corpus

    def blocks(
        self, texts: Iterable[str], num_tokens: int, num_blocks: int | None = None
    ) -> Corpus:
        """A Corpus of texts run together and cut into rows of `num_tokens`; the rest is dropped.

        Raises ValueError: no block of this length, fewer than asked for, or longer than the model
        takes.
        """
        check_list(texts)
        if check_count(num_tokens, "num_tokens") > self.max_tokens:
            raise ValueError(
                f"blocks of {num_tokens} tokens are longer than the model's {self.max_tokens}"
            )
        most = math.inf if num_blocks is None else check_count(num_blocks, "num_blocks")
        ids: list[int] = []
        for text in texts:
            if len(ids) >= most * num_tokens:
                break
            ids += self.tokenise(text)
        count = int(min(most, len(ids) // num_tokens))
        if count < (num_blocks or 1):
            raise ValueError(
                f"{len(ids)} tokens do not make {num_blocks or 1} blocks of {num_tokens}"
            )
        return Corpus(list(torch.tensor(ids[: count * num_tokens]).view(count, num_tokens)))

    def tokenise(self, text: str) -> list[int]:
        """The ids of a text's own tokens, however many. ValueError: no string, special or unknown tokens in it."""
        if not isinstance(text, str):
            raise ValueError(
                f"give one text, a string, got {type(text).__name__}; curves and others take a list"
            )
        tokenizer = self.tokenizer
        read = tokenizer(self.as_read(text), add_special_tokens=False, verbose=False)
        ids, unknown = read.input_ids, tokenizer.unk_token_id
        if (set(tokenizer.all_special_ids) - {unknown} | {self.network.mask_id}).intersection(ids):
            raise ValueError(
                f"special tokens such as {tokenizer.decode(self.network.mask_id)} belong to no text, "
                f"found in {text[:40]!r}"
            )
        if unknown in ids and not self.allow_unknown:
            place = ids.index(unknown)
            word = _word(self.as_read(text), place, read, tokenizer)
            raise ValueError(
                f"the tokenizer does not know {word!r}, token {place + 1} of {len(ids)} in {text[:40]!r}, "
                f"and reads {ids.count(unknown)} of them as {tokenizer.unk_token}: "
                f"{_spelling(word, tokenizer)}, or say allow_unknown=True"
            )
        return ids

    def as_read(self, text: str) -> str:
        """A text as the tokenizer gets it: its letters apart where the model is `spaced`."""
        return " ".join("".join(text.split())) if self.spaced else text

    def given(self, before: str = "", after: str = "") -> "MaskedLM":
        """The model between two texts that it always sees: its scores are log p(text | before, after).

        Areas, pseudo-log-likelihoods and pairs then count the tokens of the text in between alone.
        Each text is cut into tokens by itself: one that is to begin a word says so as its tokenizer
        wants it, mostly by a space. Raises ValueError: nothing to be given, special or unknown
        tokens in it, no room left.
        """
        before_ids, after_ids = (
            self.tokenise(part) if part != "" else [] for part in (before, after)
        )
        room = self.max_tokens - len(before_ids) - len(after_ids)
        if room == self.max_tokens or room < 1:
            raise ValueError(
                f"what is given has {self.max_tokens - room} tokens of the {self.max_tokens} "
                "that the model takes: give at least one, and leave room for a text"
            )
        there = copy.copy(self)
        there.network = dataclasses.replace(
            self.network,
            prefix=[*self.network.prefix, *before_ids],
            suffix=[*after_ids, *self.network.suffix],
            max_tokens=room,
        )
        return there

    def at_length(self, num_tokens: int) -> "AtLength":
        """The model for rows of `num_tokens` of their own tokens, as `score` takes it: a ConditionalModel."""
        return AtLength(self.network, num_tokens)

    def curve(
        self, text: Texts, sizes: Sizes | None = None, *, num_masks: int = 1, generator: Generator
    ) -> TextCurve:
        """The MPT curve of one text at exact mask sizes, a TextCurve: as `curves` of one text."""
        return self.curves(self._one(text), sizes, num_masks=num_masks, generator=generator)[0]

    @torch.no_grad()
    def curves(
        self,
        texts: Texts,
        sizes: Sizes | Callable[[int], Sizes] | None = None,
        *,
        num_masks: int = 1,
        generator: Generator,
    ) -> list[TextCurve]:
        """The MPT curve of each text.

        sizes: for all texts alike, or a function of their length, such as partial(spaced_sizes,
        count=16). Masks follow from the generator, a text's length and its place in the list; other
        texts change nothing.
        """
        corpus, seed = self.read(texts), draws.seed(generator)
        lengths = corpus.lengths
        check_count(num_masks, "num_masks")
        every = {length: _sizes_of(sizes, length) for length in set(lengths)}
        # the size of each mask
        each = [every[length].repeat_interleave(num_masks) for length in lengths]
        asked = [
            self.request(ids, sizes, draws.seeded(seed, len(ids), i))
            for i, (ids, sizes) in enumerate(zip(corpus.rows, each, strict=True))
        ]
        found: list[Any] = [None] * len(lengths)
        for i, answer in self.network.log_probs(asked):
            scores = mean_by_mask(answer, each[i]).unflatten(0, (-1, num_masks))
            variance, dof = (part.numpy() for part in score.mask_variance(scores, shared=True))
            found[i] = TextCurve(
                lengths[i],
                every[lengths[i]].numpy(),
                scores.mean(1).numpy(),
                variance,
                dof,
                None,
                scores.numpy(),
            )
        return found

    def exact_curve(self, text: Texts) -> ScoreCurve:
        """The curve of one text over all of its masks: no noise."""
        [ids] = self._one(text).rows
        return score.exact_curve(self.at_length(len(ids)), ids[None])

    @torch.no_grad()
    def areas(
        self, texts: Texts, num_passes: int, *, error: float, generator: Generator
    ) -> RowEstimates:
        """The area of each text to a standard error of about `error` nats: RowEstimates.

        At most `num_passes` rows are asked about a text, by the rule of `allocation.AreaPlan`, also
        under all masks; none is asked twice where all fit. Texts may differ in length; all sizes
        count, and each row goes where the noise is. Raises ValueError as that and `read`.
        """
        rows = self.read(texts).rows
        plan = AreaPlan([*map(len, rows)], num_passes, error)
        fits = np.flatnonzero(plan.masks <= num_passes)
        known = {int(i): not_yet_asked(len(rows[i])) for i in fits}
        while len((asked := plan.next(generator)).row):
            plan.tell(self._score_by_mask(rows, asked, known, generator))
        reached = plan.estimates().reached
        in_full = [i for i in known if plan.short[i] or not reached[i]]
        found = plan.estimates({i: exact_area(self, rows, i, known) for i in in_full})
        for i, scores in known.items():  # a mask that was drawn again was asked once
            found.passes[i] = int(scores.isfinite().sum())
        return found

    def _score_by_mask(
        self,
        rows: Sequence[Tensor],
        asked: Masks,
        known: Mapping[int, Tensor],
        generator: Generator,
    ) -> np.ndarray:
        """The score of rows under a random mask of each size asked, nats per token [P, k]; known: `mask_scores`."""
        found, own = np.empty(asked.size.shape), np.unique(asked.row)
        sizes = {int(i): torch.from_numpy(asked.size[asked.row == i].ravel()) for i in own}
        hidden = {
            i: ~random_masks(len(rows[i]), size, generator=generator) for i, size in sizes.items()
        }
        for i, scores in mask_scores(self, rows, hidden, known).items():
            found[asked.row == i] = scores.reshape(-1, asked.size.shape[1]).numpy()
        return found

    @torch.no_grad()
    def pseudo_log_likelihood(self, texts: Texts, hide_later: str = "none") -> Tensor:
        """sum_j log p(x_j | all others) = D S(x; 1), nats per text [texts].

        The pseudo-log-likelihood of Besag (1975), the PLL of Salazar et al. (2020).
        hide_later="word" hides with each token the later ones of its own word (Kauf and Ivanova
        2023); "all" hides all later ones, which is the chain rule from left to right. Raises
        ValueError as `read`; for "word", ids in place of texts, or a tokenizer that does not tell
        words.
        """
        return torch.stack([scores.sum() for scores in self.single_scores(texts, hide_later)])

    @torch.no_grad()
    def single_scores(self, texts: Texts, hide_later: str = "none") -> list[Tensor]:
        """What each token adds to `pseudo_log_likelihood`, nats per token: one tensor [D_i] for each text.

        A row of a Corpus that is too long for the model is read through a window around each token.
        """
        check_choice(hide_later, LATER, "hide_later")
        corpus = self.read(texts)
        words = [torch.arange(length) * (hide_later != "all") for length in corpus.lengths]
        if hide_later == "word":
            words = self._words(corpus)

        if hide_later != "none" and max(corpus.lengths) > self.max_tokens:
            raise ValueError("a text that is too long has windows with hide_later='none' alone")
        asked = [
            Request(min(len(ids), self.max_tokens), len(ids), partial(self._singly, ids, word))
            for ids, word in zip(corpus.rows, words, strict=True)
        ]
        found = dict(self.network.log_probs(asked))
        return [found[i] for i in range(len(words))]

    @torch.no_grad()
    def masked_marginals(self, text: Texts) -> Tensor:
        """log p(x_j = v | all others), nats [D, V]: what the model would have said of every word v there.

        One pass for each place answers for all single mutants: row j, column v minus column x_j
        scores x_j -> v (Meier et al. 2021). Ids that are too many for the model are read through
        windows.
        """
        [ids] = self._one(text).rows
        request = Request.of(self._windows(ids))
        [(_, found)] = self.network.log_probs([request], vocabulary=True)
        return found

    def token_scores(self, text: Texts, hide_later: str = "none") -> TokenScores:
        """log p(x_j | all others) of each token, with its spelling: TokenScores. Their sum is the
        pseudo-log-likelihood, whose `hide_later` this takes too."""
        corpus = self._one(text)
        spelt = self.tokenizer.convert_ids_to_tokens(corpus.rows[0].tolist())
        return TokenScores(spelt, self.single_scores(corpus, hide_later)[0])

    @torch.no_grad()
    def chain_rule(self, text: Texts, orders: Tensor) -> Tensor:
        """log p(x_{M(t)} | x_{M(t+1:D)}) along orders [Q, D], nats per token [Q, t]: `score.chain_rule`.

        The last token of an order is predicted first, from nothing: left to right is the order D-1,
        ..., 0. Raises ValueError: orders that are no permutations.
        """
        [ids] = self._one(text).rows
        found = score.chain_rule(self.at_length(len(ids)), ids[None], torch.as_tensor(orders))
        return found[:, 0].double()

    def _words(self, corpus: Corpus) -> list[Tensor]:
        """Which word of its text each token is part of, long [D_i]. Raises ValueError as `single_scores`."""
        if corpus.texts is None or not self.tokenizer.is_fast:
            raise ValueError(
                'hide_later="word" needs texts, and a tokenizer that tells words (is_fast)'
            )
        shown = [*map(self.as_read, corpus.texts)]
        read = self.tokenizer(shown, add_special_tokens=False, verbose=False)
        return [torch.tensor(read.word_ids(i)) for i in range(len(shown))]

    def request(
        self, ids: Tensor, sizes: Tensor, generator: Generator, corruption: str = "mask"
    ) -> Request:
        """The text ids [D] under a random mask of each of the sizes, by one of CORRUPTIONS."""

        def rows() -> Rows:
            hidden = ~random_masks(len(ids), sizes, generator=generator)
            if corruption == "mask":
                return Rows.hiding(ids, hidden, self.network.mask_id)
            known = self.network.mask_id, self.network.vocab_size
            return Rows.hiding(
                ids, hidden, draws.bert_rule(ids.expand_as(hidden), *known, generator)
            )

        return Request(len(ids), len(sizes), rows)

    def _singly(self, ids: Tensor, word: Tensor) -> Rows:
        """Each token of the text ids [D], with the later ones of its word [D] hidden beside it."""
        if len(ids) > self.max_tokens:
            return self._windows(ids)
        hidden = (word == word[:, None]).triu()
        return dataclasses.replace(
            Rows.hiding(ids, hidden, self.network.mask_id), asked=torch.eye(len(ids)).bool()
        )

    def _windows(self, ids: Tensor) -> Rows:
        """The text ids [D] with one token hidden each, as much around it as the model takes: D rows."""
        length, width = len(ids), min(len(ids), self.max_tokens)
        first = (torch.arange(length) - width // 2).clamp(0, length - width)
        hidden = torch.arange(width) == (torch.arange(length) - first)[:, None]
        rows = ids[first[:, None] + torch.arange(width)]
        return Rows(rows, torch.where(hidden, self.network.mask_id, rows), hidden)


def _sizes_of(sizes: Sizes | Callable[[int], Sizes] | None, length: int) -> Tensor:
    """The mask sizes of a text, as `MaskedLM.curves` takes them, each once and in order."""
    asked = sizes(length) if callable(sizes) else sizes
    return check_sizes(range(1, length + 1) if asked is None else asked, length).unique()


def mean_by_mask(answer: Tensor, sizes: Tensor) -> Tensor:
    """The mean over each mask's own answers, which stand one after the other: [masks] for sizes [masks]."""
    mask = torch.arange(len(sizes)).repeat_interleave(sizes)
    return answer.new_zeros(len(sizes)).index_add(0, mask, answer) / sizes


def not_yet_asked(length: int) -> Tensor:
    """For `mask_scores`: of every mask of a text of so many tokens its score, NaN where none is known [2^D]."""
    return torch.full((2**length,), math.nan, dtype=torch.float64)


def mask_scores(
    lm: MaskedLM, rows: Sequence[Tensor], hidden: Mapping[int, Tensor], known: Mapping[int, Tensor]
) -> dict[int, Tensor]:
    """The mean log-probability of what masks hidden[i] [n, D] hide of text i, nats per token [n]: of each i.

    known: of some texts what was asked before (`not_yet_asked`). It is filled in, and not asked
    again.
    """
    asked, codes, new = dict(hidden), {}, {}
    for i in hidden.keys() & known.keys():
        codes[i] = hidden[i].long() @ 2 ** torch.arange(len(rows[i]))
        new[i] = codes[i].unique()
        new[i] = new[i][known[i][new[i]].isnan()]
        asked[i] = _hides(new[i], len(rows[i]))
    found, texts = {}, [i for i, masks in asked.items() if len(masks)]
    for k, answer in lm.network.log_probs([lm.network.hiding(rows[i], asked[i]) for i in texts]):
        found[texts[k]] = check_scores(mean_by_mask(answer, asked[texts[k]].sum(1)))
    for i, code in codes.items():
        if i in found:
            known[i][new[i]] = found[i]
        found[i] = known[i][code]
    return found


def _hides(code: Tensor, length: int) -> Tensor:
    """Which tokens of a text masks hide, whose numbers [n] have these as binary digits: bool [n, D]."""
    return (code[:, None] >> torch.arange(length)) % 2 == 1


def exact_area(
    lm: MaskedLM, rows: Sequence[Tensor], place: int, known: Mapping[int, Tensor]
) -> float:
    """The area of a text, in nats, from all of its masks: those that are not known are asked."""
    length = len(rows[place])
    masks = _hides(torch.arange(1, 2**length), length)
    scores, sizes = mask_scores(lm, rows, {place: masks}, known)[place], masks.sum(1)
    return float(sum(scores[sizes == size].mean() for size in range(1, length + 1)))


def check_scores(scores: Tensor) -> Tensor:
    """Scores as they are. Raises ValueError: one that is not finite."""
    if not scores.isfinite().all():
        raise ValueError("the model has no finite score for it")
    return scores


class AtLength:
    """A Network for rows of D token ids: the ConditionalModel that `score` and `objectives` ask for.

    A shorter row ends in the tokenizer's padding token, observed. ValueError: more than the model
    takes.
    """

    def __init__(self, network: Network, num_tokens: int) -> None:
        if check_count(num_tokens, "num_tokens") > network.max_tokens:
            raise ValueError(
                f"rows of {num_tokens} tokens are longer than the model's {network.max_tokens}"
            )
        self.network, self.num_tokens, self.vocab_size = network, num_tokens, network.vocab_size

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D]; 0 at observed tokens, NaN where a masked token is NaN.

        x [..., D] and observed [..., D] broadcast. ValueError: shapes that do not fit, unknown
        token ids.
        """
        found = self._log_probs(x, observed, ~observed)
        answer = found.new_zeros(torch.broadcast_shapes(x.shape, observed.shape))
        return at_masked(answer.masked_scatter(~observed, found), x, observed)

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j = v | x_R), nats per token [..., D, V], also at tokens that are seen."""
        found = self._log_probs(x, observed, torch.ones_like(observed), vocabulary=True)
        return found.view(*torch.broadcast_shapes(x.shape, observed.shape), self.vocab_size)

    def log_prob_at(self, x: Tensor, observed: Tensor, token: Tensor) -> Tensor:
        """log p(x_j | x_R) of one masked token j = `token` [...] of each row, nats [...]."""
        return self._log_probs(x, observed, one_hot(token, self.num_tokens).bool()).view(
            token.shape
        )

    def _log_probs(
        self, x: Tensor, observed: Tensor, asked: Tensor, vocabulary: bool = False
    ) -> Tensor:
        """Log-probabilities where `asked`, [places] or [places, V]; float64 if x or the network is."""
        check_shapes(x, observed, self.num_tokens)
        check_vocabulary(x, observed, self.vocab_size)
        ids, seen, wanted = (
            part.reshape(-1, self.num_tokens)
            for part in torch.broadcast_tensors(
                torch.nan_to_num(x).long().cpu(), observed.cpu(), asked.cpu()
            )
        )
        tokens = (ids != self.network.tokenizer.pad_token_id) | ~seen
        # none from here on
        ids = torch.where(tokens.flip(-1).cumsum(-1).flip(-1) > 0, ids, NO_TOKEN)
        rows = Rows(ids, torch.where(seen, ids, self.network.mask_id), wanted)
        each = self.network.log_probs([Request.of(rows)], vocabulary=vocabulary)
        found = torch.cat([answer for _, answer in each] or [torch.zeros(0)])
        precision = (
            x.dtype if x.is_floating_point() else next(self.network.model.parameters()).dtype
        )
        return found.to(x.device, torch.promote_types(precision, torch.float32))


def _word(text: str, place: int, read: Any, tokenizer: Any) -> str:
    """What stands in a text at the place of an unknown token."""
    if tokenizer.is_fast:
        at = read.token_to_chars(place)
        return text[at.start : at.end] if at else text
    word = tokenizer.tokenize(text)[place]
    return word if word in text else text  # a tokenizer of Python mostly leaves it as it is


def _spelling(word: str, tokenizer: Any) -> str:
    """What to do about a word that the tokenizer does not know."""
    vocabulary = tokenizer.get_vocab()
    if word == tokenizer.unk_token:
        return "which stands for such words: leave it out"
    if word in vocabulary:
        return f"its vocabulary has {word!r}, so it changes texts first: load it with do_lower_case=False"
    for form in (word.upper(), word.lower()):
        if form in vocabulary:
            return f"its vocabulary has {form!r}: write it so"
        if form != word and vocabulary.keys() >= set(form):
            return f"its vocabulary has the letters of {form!r}: write them so"
    known = [letter for letter in word if letter in vocabulary]
    if 2 * len(known) <= len(word):
        return "correct the text, or load the tokenizer that the model was trained with"
    advice = [
        f"its vocabulary has no {letter!r}: leave it out, or replace it"
        for letter in dict.fromkeys(word)
        if letter not in vocabulary
    ]
    if tokenizer.unk_token_id in tokenizer("".join(known), add_special_tokens=False).input_ids:
        advice.append("if its words are single letters, say spaced=True")
    return "; ".join(advice)
