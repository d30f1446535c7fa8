"""Sequences of letters, such as proteins and genes: how a tokenizer is to read them, and their variants."""

import re
from collections.abc import Sequence
from typing import Any

from .inputs import Text

LETTERS = ("joined", "spaced")
# Of texts without blanks: capitals, bases, or more letters than a word has.
SEQUENCE = re.compile(r"[A-Z*.-]+|[ACGTUNacgtun]+|[A-Za-z*.-]{25,}", re.ASCII)
THREE = "Ala Cys Asp Glu Phe Gly His Ile Lys Leu Met Asn Pro Gln Arg Ser Thr Val Trp Tyr Ter"
NAMES = dict(zip(THREE.split(), "ACDEFGHIKLMNPQRSTVWY*", strict=True))
MUTANT = re.compile(r"([A-Za-z])(-?\d+)([A-Za-z*=])")


def is_spaced(tokenizer: Any, texts: Sequence[Text], letters: str | None) -> bool:
    """Whether a tokenizer is to read the texts letter by letter: as `letters` says, or as it knows them.

    Texts that are no sequences are read as they stand, and so are sequences whose letters stand
    apart. Raises ValueError: a sequence that the tokenizer knows both ways, and not as the same
    tokens.
    """
    if letters is not None:
        return letters == "spaced"
    joined = [text for text in texts if len(text.text.split()) == 1]
    if not are_sequences(texts):
        return False
    unknown = [0.0, 0.0]  # of all tokens, as they stand and letter by letter
    for line, text, *_ in joined:
        ways = [
            tokenizer(way, add_special_tokens=False, verbose=False).input_ids
            for way in (text, " ".join(text.strip()))
        ]
        shares = [ids.count(tokenizer.unk_token_id) / max(len(ids), 1) for ids in ways]
        if ways[0] != ways[1] and shares == [0, 0]:
            raise ValueError(
                f"line {line}: the tokenizer knows {text[:20]!r} as it stands ({len(ways[0])} tokens) and "
                f"letter by letter ({len(ways[1])}): say --letters joined or --letters spaced"
            )
        unknown = [old + new for old, new in zip(unknown, shares, strict=True)]
    return unknown[1] < unknown[0]


def are_sequences(texts: Sequence[Text]) -> bool:
    """Whether all texts are sequences, by name or by their letters; single letters may stand apart."""
    words = [text.text.split() for text in texts if text.name is None]
    apart = [len(those) > 1 and max(map(len, those)) > 1 for those in words]
    return not any(apart) and all(SEQUENCE.fullmatch("".join(those)) for those in words)


def is_mutant(text: str) -> bool:
    """Whether a text names substitutions, as `mutated` reads it."""
    parts = _parts(text)
    return bool(parts) and all(map(MUTANT.fullmatch, parts))


def mutated(wild: str, mutant: str, offset: int = 1) -> str:
    """The wild type with the substitutions of a mutant such as E1A:V2G or p.Glu1Ala; "WT" has none.

    offset: the number of the wild type's first letter. Raises ValueError: what is no substitution,
    another letter in the wild type, a number outside of it, two substitutions of one letter.
    """
    letters, seen = [*wild], set()
    for part in _parts(mutant):
        found = MUTANT.fullmatch(part)
        if not found:
            raise ValueError(f"{part!r} is no substitution such as E1A")
        old, number, new = found[1], int(found[2]), found[3]
        place = number - offset
        if not 0 <= place < len(wild):
            raise ValueError(
                f"{part}: the wild type has the letters {offset} to {offset + len(wild) - 1}"
            )
        if wild[place] != old or place in seen:
            raise ValueError(
                f"{part}: letter {number} of the wild type is {wild[place]}, "
                f"{'and is replaced twice' if place in seen else 'so the first letter may have another number'}"
            )
        seen.add(place)
        letters[place] = old if new == "=" else new
    return "".join(letters)


def _parts(mutant: str) -> list[str]:
    """The substitutions of a mutant, residues by one letter; none of the wild type."""
    text = re.sub(r"p\.|[][()]", "", mutant.strip())
    text = re.sub("[A-Z][a-z]{2}", lambda found: NAMES.get(found[0], found[0]), text)
    if text.strip("_").upper() == "WT" or text == "=":
        return []
    return re.split(r"[:;,/+_\s]+", text)
