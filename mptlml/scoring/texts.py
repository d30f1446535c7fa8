"""What the tool asks of a text, beside what `MaskedLM` answers: with a text before it, from left to right, by word."""

import copy
from typing import Any

import torch
from torch import Tensor

from ..masked_lm import MaskedLM


def given(lm: MaskedLM, before: str = "", after: str = "") -> MaskedLM:
    """The model between two texts that it always sees: its scores are log p(text | before, after).

    Areas, pseudo-log-likelihoods and pairs then count the tokens of the text in between alone.
    Each text is cut into tokens by itself: one that is to begin a word says so as its tokenizer
    wants it, mostly by a space. Raises ValueError: nothing to be given, special or unknown
    tokens in it, no room left.
    """
    ids = [lm.tokenise(part) if part != "" else [] for part in (before, after)]
    there, count = copy.copy(lm), sum(map(len, ids))
    there.max_tokens -= count
    if count == 0 or there.max_tokens < 1:
        raise ValueError(
            f"what is given has {count} tokens of the {lm.max_tokens} "
            "that the model takes: give at least one, and leave room for a text"
        )
    there.frame = [*lm.frame[0], *ids[0]], [*ids[1], *lm.frame[1]]
    return there


def by_word(lm: MaskedLM, text: str) -> Tensor:
    """log p(x_j | all others but the later tokens of its own word), nats per token [D] (Kauf and Ivanova 2023).

    By a fast tokenizer, which tells words. The pieces of a long word do not predict each other.
    """
    word = lm.tokenizer(text, add_special_tokens=False).word_ids()
    return _hiding_later(lm, lm.encode(text), torch.tensor(word))


def left_to_right(lm: MaskedLM, ids: Tensor) -> Tensor:
    """log p(x_j | x_1, ..., x_{j-1}) of each token of ids [D], nats [D]."""
    return _hiding_later(lm, ids, torch.zeros(len(ids)))


@torch.no_grad()
def _hiding_later(lm: MaskedLM, ids: Tensor, word: Tensor) -> Tensor:
    """Each token of ids [D] without the later ones of its word, whose number is word [D]."""
    hidden, own = (word == word[:, None]).triu(), torch.arange(len(ids))
    return lm.at_length(len(ids)).log_prob_at(ids.double().expand_as(hidden), ~hidden, own)


def encode(lm: MaskedLM, text: str, *, truncate: bool = False, windows: bool = False) -> Tensor:
    """A text's own tokens, long [D], with advice about a word that is unknown.

    truncate: a text that is too long gives as many of its tokens as the model takes; windows: all
    of them. Raises ValueError as `MaskedLM.encode`.
    """
    try:
        ids = lm.tokenise(text)
    except ValueError as error:
        raise ValueError(f"{error}{_advice(lm, text)}") from None
    if not ids or not (truncate or windows):
        return lm.encode(text)
    return torch.tensor(ids if windows else ids[: lm.max_tokens])


def _advice(lm: MaskedLM, text: str) -> str:
    """What to do about the first word that the tokenizer does not know, if there is one."""
    tokenizer, shown = lm.tokenizer, " ".join("".join(text.split())) if lm.spaced else text
    read = tokenizer(shown, add_special_tokens=False, verbose=False)
    if tokenizer.unk_token_id not in read.input_ids:
        return ""
    place = read.input_ids.index(tokenizer.unk_token_id)
    at = read.token_to_chars(place) if tokenizer.is_fast else None
    word = shown[at.start : at.end] if at else tokenizer.tokenize(shown)[place]
    return f"; {word!r}: {_spelling(word, tokenizer)}"


def _spelling(word: str, tokenizer: Any) -> str:
    vocabulary = tokenizer.get_vocab()
    if word in vocabulary:
        return f"its vocabulary has {word!r}, so it changes texts first: load it with do_lower_case=False"
    for form in (word.upper(), word.lower()):
        if form in vocabulary or form != word and vocabulary.keys() >= set(form):
            return f"its vocabulary has {form!r}, or its letters: write it so"
    unknown = [letter for letter in dict.fromkeys(word) if letter not in vocabulary]
    if 2 * len(unknown) > len(set(word)):
        return "is it the tokenizer that the model was trained with?"
    return f"it has no {', '.join(unknown)}; if its words are single letters, say spaced=True"
