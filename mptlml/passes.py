"""Passes of masked rows through a network of transformers: what it takes, and how rows share a pass.

The rows of a text are made when its turn comes, rows of several lengths go through together, and
the vocabulary head answers where it is asked only: memory is bounded by the rows of one text and
the tokens of one pass, however many texts there are.
"""

import inspect
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Lock, get_ident
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import pad
from tqdm import tqdm

from .checks import check_count, check_known
from .memory import at_once

# tokens in a pass: bounds the logits, tokens x vocabulary
BATCH_TOKENS = {"cpu": 1024, "cuda": 2**14}
LOCKS: WeakKeyDictionary[torch.nn.Module, Lock] = WeakKeyDictionary()  # by head: one pass at a time
SHORT = 128  # tokens: texts of up to so many are tried for padding as soon as a network is taken
PLACES = 12  # tokens of the text that tells whether answers are for their own place
NO_TOKEN = -1  # fills the ids of rows shorter than the longest of a batch
ADVICE = "take an encoder that was trained as a masked language model, such as BERT"


@dataclass(frozen=True, eq=False)
class Rows:
    """Copies of one text with hidden tokens: true `ids`, what is `shown` instead, and where one `asked`.

    ids and shown: long [n, D]; asked: bool [n, D]. A row may end in NO_TOKEN.
    """

    ids: Tensor
    shown: Tensor
    asked: Tensor

    @classmethod
    def hiding(cls, ids: Tensor, hidden: Tensor, instead: int | Tensor) -> "Rows":
        """The text ids [D] with `instead` (a token, or [n, D]) where `hidden` [n, D], and asked there."""
        return cls(ids.expand_as(hidden), torch.where(hidden, instead, ids), hidden)

    @classmethod
    def together(cls, parts: Sequence["Rows"]) -> "Rows":
        """The rows of several texts, which end in NO_TOKEN where another text is longer."""
        longest = max(part.ids.shape[1] for part in parts)

        def joined(name: str, filler: int = 0) -> Tensor:
            each = [getattr(part, name) for part in parts]
            return torch.cat([pad(one, (0, longest - one.shape[1]), value=filler) for one in each])

        return cls(joined("ids", NO_TOKEN), joined("shown"), joined("asked"))

    def part(self, start: int, stop: int) -> "Rows":
        """Rows start, ..., stop - 1."""
        return Rows(self.ids[start:stop], self.shown[start:stop], self.asked[start:stop])


@dataclass(frozen=True, eq=False)
class Request:
    """What is asked about a text of `length` tokens: `count` rows, which `rows()` makes when their turn comes."""

    length: int
    count: int
    rows: Callable[[], Rows]

    @classmethod
    def of(cls, rows: Rows) -> "Request":
        """Rows that are made already."""
        return cls(rows.ids.shape[1], len(rows.ids), lambda: rows)


@dataclass(frozen=True, eq=False)
class Network:
    """A network and how it is asked; `dataclasses.replace` makes one that is asked otherwise.

    passes: what takes the token ids of a pass, in evaluation mode: a model of transformers, or one
    in DistributedDataParallel. prefix, suffix: ids around every text; max_tokens: the most between
    them; batch_tokens: the most tokens in a pass of several rows; dtype: that of autocast, if any.
    What it has found out of the network by asking belongs to it alone: a copy asks again.
    """

    passes: Any
    tokenizer: Any
    mask_id: int
    prefix: Sequence[int]
    suffix: Sequence[int]
    max_tokens: int
    batch_tokens: int
    dtype: torch.dtype | None = None

    @classmethod
    def checked(
        cls,
        passes: Any,
        tokenizer: Any,
        mask_token: str | int | None,
        batch_tokens: int | None,
        dtype: torch.dtype | None,
    ) -> "Network":
        """One whose network and tokenizer were tried on each other. Raises ValueError as `MaskedLM` says."""
        if isinstance(passes, torch.nn.DataParallel):
            raise ValueError(
                "DataParallel splits a batch from its masks: "
                "use DistributedDataParallel or model.module"
            )
        model = getattr(passes.eval(), "module", passes)
        _check_inputs(model)
        usual = BATCH_TOKENS["cuda" if _device(model).type == "cuda" else "cpu"]
        prefix, suffix = _frame(tokenizer)
        net = cls(
            passes,
            tokenizer,
            _mask_id(tokenizer, mask_token, _vocab_size(model)),
            prefix,
            suffix,
            _longest(model, tokenizer) - len(prefix) - len(suffix),
            check_count(usual if batch_tokens is None else batch_tokens, "batch_tokens"),
            dtype,
        )
        _check_vocabularies(net)
        if getattr(net.model.config, "token_dropout", False):
            warnings.warn(
                f"{net.kind} multiplies its embeddings by 0.88 / (1 - share of masked tokens) "
                "(token_dropout): where most are masked, its scores measure this rule too",
                stacklevel=4,
            )
        try:
            _check_head(net)
            _check_bidirectional(net)
            _check_places(net)
            net.may_pad(1)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, IndexError) as error:
            raise ValueError(
                f"{net.kind} fails when it is asked about a short text: {error}"
            ) from error
        return net

    @property
    def model(self) -> Any:
        """The network itself."""
        return getattr(self.passes, "module", self.passes)

    @property
    def kind(self) -> str:
        """What messages call it."""
        return type(self.model).__name__

    @cached_property
    def device(self) -> torch.device:
        """Where its weights are."""
        return _device(self.model)

    @cached_property
    def vocab_size(self) -> int:
        """Rows of its table of word embeddings."""
        return _vocab_size(self.model)

    @cached_property
    def words(self) -> list[int]:
        """All ids but those of special tokens, in order."""
        special = {*self.tokenizer.all_special_ids, self.mask_id}
        return sorted(set(self.tokenizer.get_vocab().values()) - special)

    @cached_property
    def _takes_mask(self) -> bool:
        return any(
            each.name == "attention_mask" or each.kind is each.VAR_KEYWORD
            for each in inspect.signature(self.model.forward).parameters.values()
        )

    @cached_property
    def _pads(self) -> dict[int, bool]:
        """What `may_pad` has found out, by length."""
        return {}

    def hiding(self, ids: Tensor, hidden: Tensor) -> Request:
        """What the mask token hides of the text ids [D], or of each row [n, D], where `hidden` [n, D]."""
        count, length = hidden.shape
        return Request(length, count, partial(Rows.hiding, ids, hidden, self.mask_id))

    def log_probs(
        self, requests: Sequence[Request], *, vocabulary: bool = False
    ) -> Iterator[tuple[int, Tensor]]:
        """Yields (i, log-probabilities where the rows of request i are asked), shortest first; float64, nats.

        They have one entry for each place asked, row by row: that of the true token [places], or
        with `vocabulary` of every word [places, V]. A pass takes rows of several texts where they
        fit.
        """
        parts: defaultdict[int, list[Tensor]] = defaultdict(list)
        total = sum(each.count for each in requests)
        with tqdm(total=total, desc="passes", disable=None, delay=3, leave=False) as bar:
            for batch in self._batches(requests):
                asked = []
                for i, start, stop in batch:
                    if start == 0:
                        of_text = requests[i].rows()
                    asked.append(of_text.part(start, stop))
                answer = check_known(self._forward(asked, vocabulary)).double().cpu()
                places = [int(part.asked.sum()) for part in asked]
                for (i, start, stop), values in zip(batch, answer.split(places), strict=True):
                    parts[i].append(values)
                    bar.update(stop - start)
                    if stop == requests[i].count:
                        yield i, torch.cat(parts.pop(i))

    def _batches(self, requests: Sequence[Request]) -> Iterator[list[tuple[int, int, int]]]:
        """What makes up a pass, at most `batch_tokens`: (i, start, stop), rows start to stop - 1 of request i.

        Rows of several lengths share a pass only where the network does not see padding.
        """
        lengths = [each.length for each in requests]
        may_pad = self.may_pad(max(lengths, default=1))
        batch: list[tuple[int, int, int]] = []
        held = 0
        # the longest sets the width
        for i in sorted(range(len(lengths)), key=lengths.__getitem__):
            width = lengths[i] + len(self.prefix) + len(self.suffix)
            most = at_once(self.batch_tokens // width, width * self.vocab_size)
            start, count = 0, requests[i].count
            while start < count:
                if batch and (held >= most or not may_pad and lengths[batch[0][0]] != lengths[i]):
                    yield batch
                    batch, held = [], 0
                stop = min(count, start + most - held)
                batch.append((i, start, stop))
                held, start = held + stop - start, stop
        if batch:
            yield batch

    def _forward(self, parts: Sequence[Rows], vocabulary: bool) -> Tensor:
        """One pass over parts of texts: log-probabilities at the places asked, [places] or [places, V]."""
        rows = Rows.together(parts)
        (count, width), frame = rows.ids.shape, (len(self.prefix), len(self.suffix))
        before, after = (
            torch.tensor(part, dtype=torch.long).expand(count, -1)
            for part in (self.prefix, self.suffix)
        )
        end = frame[0] + (rows.ids != NO_TOKEN).sum(1, keepdim=True)  # of the text, [count, 1]
        if not self.may_pad(width) and (end < frame[0] + width).any():
            raise ValueError(
                f"{self.kind} sees padding, for it ignores the attention mask: "
                "ask it about rows of one length at a time"
            )
        framed = torch.cat([before, rows.shown, after], 1)
        place = torch.arange(framed.shape[1])
        framed = torch.where(place < end, framed, self.tokenizer.pad_token_id or 0)
        framed = framed.scatter(1, end + torch.arange(frame[1]), after)
        attended = (place < end + frame[1]).long()
        logits = self._logits(framed, attended, pad(rows.asked, frame), self.dtype)
        if vocabulary:
            return logits.log_softmax(-1)
        true = rows.ids[rows.asked].to(self.device)[:, None]
        few = zip(logits.split(256), true.split(256), strict=True)  # less memory
        return torch.cat([some.gather(-1, own)[:, 0] - some.logsumexp(-1) for some, own in few])

    def may_pad(self, longest: int) -> bool:
        """Whether rows of at most `longest` tokens may end in padding, since the network does not see it.

        The network itself is asked, once about short texts and once for each doubling of `longest`,
        as some attend in blocks. Raises ValueError: answers change when it is asked again, so it
        draws at random.
        """
        if self.model.training:  # dropout draws too: then what was found of short texts holds
            longest = 1
        level = min(self.max_tokens, max(SHORT, 1 << (longest - 1).bit_length()))
        if level not in self._pads:
            lengths = [(1, 2), (1, 9), (12, 52), (91, SHORT)]
            if level > SHORT:
                lengths = [(3 * level // 4 - 5, level)]
            same = [
                _same_before_padding(self, min(one, level), min(other, level))
                for one, other in lengths
            ]
            self._pads[level] = all(same) and (level <= SHORT or self.may_pad(SHORT))
        return self._pads[level]

    def _logits(
        self, given: Tensor, seen: Tensor, where: Tensor, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Logits [places, V] where `where` [B, L] is True: the vocabulary head sees no other place.

        given [B, L]: token ids; seen [B, L]: 1 for a token, 0 for padding; dtype: that of autocast,
        if any.
        """
        where, own = where.to(self.device), get_ident()
        head = _of_model(self.model, "get_output_embeddings")
        mask = {"attention_mask": seen.to(self.device)} if self._takes_mask else {}
        gradients = torch.is_grad_enabled() and self.model.training
        with (
            LOCKS.setdefault(head or self.model, Lock()),
            torch.set_grad_enabled(gradients),
            torch.autocast(self.device.type, dtype, enabled=dtype is not None),
        ):
            hook = (
                head
                and head.register_forward_pre_hook(  # others may use the network at the same time
                    lambda module, inputs: (inputs[0][where],) if get_ident() == own else inputs
                )
            )
            try:
                answer = self.passes(given.to(self.device), **mask)
            finally:
                if hook:
                    hook.remove()
        logits = getattr(answer, "logits", answer)
        if not torch.is_tensor(logits):
            raise ValueError(f"{self.kind} has no vocabulary head: {ADVICE}")
        if logits.ndim == 3 and logits.shape[:2] != where.shape:
            raise ValueError(f"{self.kind} answers with shape {tuple(logits.shape)}: {ADVICE}")
        if logits.ndim == 3:  # of a head that does not use its output layer as such
            logits = logits[where]
        return logits if logits.dtype == torch.float64 else logits.float()


def _of_model(model: Any, name: str) -> Any:
    """What a method of the model answers; None where it has none, as code of its own may not."""
    try:
        return getattr(model, name)()
    except (AttributeError, NotImplementedError):
        return None


def _device(model: Any) -> torch.device:
    return next(model.parameters()).device


def _vocab_size(model: Any) -> int:
    usual = getattr(model.config, "vocab_size", 0)
    return getattr(_of_model(model, "get_input_embeddings"), "num_embeddings", usual)


def _check_inputs(model: Any) -> None:
    """ValueError for a model that wants more than tokens and their attention mask."""
    first, *others = inspect.signature(model.forward).parameters.values()
    given = (first.VAR_POSITIONAL, first.VAR_KEYWORD)
    wanted = [each.name for each in others if each.default is each.empty and each.kind not in given]
    if lacking := [name for name in wanted if name != "attention_mask"]:
        raise ValueError(
            f"{type(model).__name__} wants {' and '.join(lacking)} beside the tokens: "
            "give a subclass whose forward fills that in"
        )


def _mask_id(tokenizer: Any, mask_token: str | int | None, size: int) -> int:
    """The id of the mask token, also one given by hand, by its spelling or id. Raises ValueError: none."""
    if mask_token is None:
        if tokenizer.mask_token_id is None:
            raise ValueError(
                "the tokenizer has no mask token: use that of a masked language model, such as BERT's, "
                "or name the token by mask_token="
            )
        return int(tokenizer.mask_token_id)
    known = tokenizer.get_vocab().get(str(mask_token))
    found = int(mask_token) if known is None and str(mask_token).isdecimal() else known
    if found is None or not 0 <= found < size:
        raise ValueError(f"mask_token {mask_token!r} is none of the model's {size} tokens")
    return found


def _longest(model: Any, tokenizer: Any) -> int:
    """Positions that model and tokenizer have, special tokens included."""
    most = [tokenizer.model_max_length]
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # RoBERTa counts from behind padding
            most.append(
                module.num_embeddings
                - (0 if module.padding_idx is None else module.padding_idx + 1)
            )
    return min(most + [getattr(model.config, "max_position_embeddings", None) or most[0]])


def _frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens before and after a text. Raises ValueError: its own cannot be told from them."""
    own, framed = (
        tokenizer("a", add_special_tokens=special).input_ids for special in (False, True)
    )
    start = next((k for k in range(len(framed)) if own and framed[k : k + len(own)] == own), None)
    if start is None:
        raise ValueError(f"the tokenizer frames {own} as {framed}: cannot tell a text's own tokens")
    return framed[:start], framed[start + len(own) :]


def _check_vocabularies(net: Network) -> None:
    """ValueError for a tokenizer and a model that were not made for each other, as far as one can see."""
    tokenizer, size = net.tokenizer, net.vocab_size
    if not size:
        raise ValueError(f"{net.kind} has no table of word embeddings: {ADVICE}")
    largest, pad = (
        max(tokenizer.get_vocab().values()),
        getattr(net.model.config, "pad_token_id", None),
    )
    if len(net.words) < 2:
        raise ValueError(
            "the tokenizer has no words but its special tokens: "
            "is its vocabulary beside the weights?"
        )
    differ = ""
    # it is often rounded up a little
    if largest >= size or size - len(tokenizer) > max(128, size // 100):
        differ = (
            f"the tokenizer has {len(tokenizer)} tokens (largest id {largest}), the model {size}"
        )
    elif None not in (pad, tokenizer.pad_token_id) and pad != tokenizer.pad_token_id:
        differ = f"the model pads with token {pad}, the tokenizer with {tokenizer.pad_token_id}"
    if differ:
        raise ValueError(f"{differ}: load both under the same name")


def _check_head(net: Network) -> None:
    """ValueError for models that by their kind cannot fill a hole, or have no vocabulary head."""
    kind, config = net.kind, net.model.config
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"{kind} is an encoder-decoder model: {ADVICE}")
    if getattr(config, "attention_type", None) == "block_sparse":
        raise ValueError(
            f"{kind} with block_sparse attention turns into another network after a short text: "
            "set attention_type to original_full in its configuration"
        )


def _check_bidirectional(net: Network) -> None:
    """ValueError for models that do not answer with logits, or cannot see to the right of a hole."""
    given = torch.tensor([[net.mask_id, net.words[0], right] for right in net.words[:2]])
    first = torch.tensor([[True, False, False]] * 2)
    with torch.no_grad():
        logits = check_known(net._logits(given, torch.ones_like(given), first))
    if logits.ndim != 2 or logits.shape[-1] != net.vocab_size:
        raise ValueError(
            f"{net.kind} answers with shape {tuple(logits.shape)}, not with logits of "
            f"{net.vocab_size} tokens: {ADVICE}"
        )
    if torch.equal(logits[0], logits[1]):
        raise ValueError(
            f"{net.kind} does not see to the right of a hole, as a causal model: {ADVICE}"
        )


def _check_places(net: Network) -> None:
    """ValueError for models whose answer at a place is for the next token, as of those made of causal ones.

    They tell the next token of a text that they see, and not the one that stands there; or it is
    the answer one place earlier that changes where a token is hidden.
    """
    text = torch.tensor(net.words[:: -(-len(net.words) // PLACES)][: net.max_tokens])
    count, frame = len(text), (len(net.prefix), len(net.suffix))
    hidden = torch.eye(count).bool()[1:]
    rows = torch.cat([text[None], torch.where(hidden, net.mask_id, text)])
    around = [
        torch.tensor(ids, dtype=torch.long).expand(count, -1) for ids in (net.prefix, net.suffix)
    ]
    given = torch.cat([around[0], rows, around[1]], 1)
    with torch.no_grad():
        found = net._logits(given, torch.ones_like(given), pad(torch.ones_like(rows), frame).bool())
    seen, *others = found.log_softmax(-1).cpu().view(count, count, -1)
    gain = (seen[:-1].gather(-1, text[1:, None]) - seen[:-1].gather(-1, text[:-1, None]))[:, 0]
    told = count > 4 and gain.mean() > max(2.0, float(4 * gain.std() / math.sqrt(len(gain))))
    moved = [int((other - seen).abs().sum(-1).argmax()) for other in others]
    early = sum(place == k for k, place in enumerate(moved))  # token k + 1 was hidden
    if told or count > 4 and early > 0.8 * len(moved):
        raise ValueError(
            f"{net.kind} answers at each place for the next token (shifted logits, as of networks made of causal "
            "ones): give a subclass that moves them by one place"
        )


def _same_before_padding(net: Network, length: int, width: int) -> bool:
    """Whether logits of a text of `length` tokens stay the same, to rounding, in a row of `width` tokens.

    Raises ValueError: they change from pass to pass.
    """
    text = (net.words[:3] * length)[:length]
    text[length // 2] = net.mask_id
    row = torch.tensor([[*net.prefix, *text, *net.suffix]])
    padded = pad(row, (0, width - length), value=net.tokenizer.pad_token_id or 0)
    places = torch.zeros(padded.shape, dtype=torch.bool)
    places[0, len(net.prefix) : len(net.prefix) + length : -(-length // 16)] = (
        True  # padding can touch far
    )
    seen = (torch.arange(padded.shape[1]) < row.shape[1])[None].long()
    with torch.no_grad():
        alone, again, among = (
            net._logits(given, seen[:, : given.shape[1]], places[:, : given.shape[1]])
            for given in (row, row, padded)
        )
    most = torch.finfo(next(net.model.parameters()).dtype).eps ** 0.6 * (alone.abs().max() + 1)
    if (alone - again).abs().max() > most:
        raise ValueError(f"{net.kind} answers otherwise when it is asked again: it draws at random")
    return bool((alone - among).abs().max() <= most)
