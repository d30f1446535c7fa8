"""The options of the command `mptlml`, in one table."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import __version__
from .inputs import FORMATS
from .sequences import LETTERS

COMMANDS = {
    "score": "score the texts of a file",
    "compare": "say of pairs of texts which is likelier",
    "choose": "say which of several answers is likeliest",
    "variants": "score mutants of a sequence",
}
# Which commands take it, by their places in COMMANDS; its name, and where it goes if not there; what it reads, with !
# where it must be given; help, which goes on in lines that begin with blanks.
OPTIONS = """
1   | texts | file! | one text per line, a table (.csv, .tsv: with --column), JSON lines (.jsonl: with --column)
    or FASTA, in UTF-8, also gzipped; - is the standard input
1   | --column columns | 1 text | the column or field that holds the texts, by name or by number from 1
1   | -o --output | file! | where scores go, one line of JSON per text, whose `line` is that of the file of texts,
    from 1; their settings go beside it
1   | --curve | file | draw the mean curve into this file (.svg, .png, .pdf)
2   | texts | file! | the first texts, as for score; or a table of pairs
2   | other | file? | the second texts, in the order of the first
2   | --columns | 2 texts | of a table of pairs, or one of each file, by name or by number (default: all, where
    there are two)
2   | -o --output | file | where the comparisons go, one line of JSON per pair
3   | texts | file! | a table or JSON lines, one question per row
3   | --columns | texts! | of the answers, by name or by number
3   | --right | text | the right answer: one of the columns, or the column that says its number, letter or text
3   | --group | text | a column by which the right answers are counted
3   | -o --output | file | where the choices go, one line of JSON per question
4   | texts | file! | the wild type: FASTA, or one line
4   | --mutations other | file! | a table or JSON lines of mutants such as E1A:V2G or p.Glu1Ala; one per line where
    it is no table
4   | --column columns | 1 text | of the mutants (default: where there is one column alone)
4   | --measured | text | a column of measured values, to which scores are compared
4   | --offset | number | the number of the wild type's first letter (default 1)
4   | -o --output | file | where the scores go, one line of JSON per mutant
1   | --sizes num_sizes | at least 2 | mask sizes per text, at least 2 (default 16)
1   | --masks num_masks | at least 1 | masks per size, at least 1 (default 4)
1   | --orders num_orders | 0 or at least 2 | random orders per text, 0 or at least 2, each a pass per token
    (default 0)
1   | --passes num_passes | at least 255 | with --error, most passes for the area of a text, at least 255
    (default 10000)
1   | --error | above 0 | measure each area to about this standard error, in nats per text, in place of --sizes
    and --masks
2   | --passes num_passes | at least 208 | most passes for a pair, at least 208 (default 10000)
34  | --passes num_passes | at least 208 | most passes to compare two, at least 208 (default 10000)
234 | --level | between 0 and 1 | when a sign is sure (default 0.95)
1234| --format | format | how files are read (default: as they are called, or begin)
1234| --letters | letters | whether the tokenizer reads letters together or one by one (default: as it knows
    sequences, and other texts as they stand)
123 | --context | text | the column of a text that stands before, as --given does
1234| --model | text! | name or folder of a masked language model
1234| --seed | at least 0 | of the random masks (default 0)
1234| --no-header header | off | the first line of a table does not name its columns
1234| --given | text | a text that stands before each text and is seen, not scored; texts follow it as they stand,
    with the space that some tokenizers want
1234| --mask-token | text | its spelling or id, where the tokenizer does not say it
1234| --revision | text | branch, tag or commit of a model by name (default main)
1234| --device | text | cpu, cuda, cuda:1, ... (default: cuda where there is one; GPUs are untried)
1234| --batch-tokens | at least 1 | most tokens in a pass: bounds the memory
1   | --tokens | on | write a score of each token, with its spelling
13  | --pseudo-log-likelihood single | on | measure this alone, by a pass per token
4   | --pseudo-log-likelihood single | on | measure this too, by a pass per token of each mutant
1   | --windows | on | with it, predict a token of a text that is too long from what is around it
2   | --area-alone others | off | leave out the two other scores, two passes per token each
4   | --areas | on | compare the area of each mutant with that of the wild type
1234| --resume | on | keep what an earlier run wrote, and go on
1234| --overwrite | on | replace what an earlier run has written
1234| --skip | on | leave out texts that cannot be scored, and say which
123 | --truncate | on | of a text that is too long, score as many tokens as the model takes
1234| --quotes | on | quotes enclose cells between tabs, as they do between commas
1234| --float32 | on | compute in single precision what was saved in half
1234| --trust-remote-code | on | run the code that comes with the model
1234| --allow-unknown | on | score unknown tokens as any other
"""
READS: dict[str, dict[str, Any]] = {
    "file": dict(type=Path),
    "file?": dict(type=Path, nargs="?"),
    "text": {},
    "1 text": dict(nargs=1),
    "2 texts": dict(nargs=2),
    "texts": dict(nargs="+"),
    "number": dict(type=int),
    "format": dict(choices=FORMATS),
    "letters": dict(choices=LETTERS),
    "on": dict(action="store_true"),
    "off": dict(action="store_false"),
}
NUMBERS: dict[str, tuple[type, Callable[[Any], bool]]] = {
    "above 0": (float, lambda number: 0 < number < math.inf),
    "between 0 and 1": (float, lambda number: 0 < number < 1),
    "0 or at least 2": (int, lambda number: number == 0 or number > 1),
}


def parser() -> argparse.ArgumentParser:
    """A parser of COMMANDS and their OPTIONS; what is not given is None."""
    whole = argparse.ArgumentParser(
        prog="mptlml", description="The area under the masked pre-training curve."
    )
    whole.add_argument("--version", action="version", version=f"mptlml {__version__}")
    commands = whole.add_subparsers(required=True)
    table = OPTIONS.strip().replace("\n    ", " ").split("\n")
    rows = [[cell.strip() for cell in row.split("|")] for row in table]
    dests = [names.split()[-1].strip("-").replace("-", "_") for _, names, *_ in rows]
    for place, (name, about) in enumerate(COMMANDS.items(), 1):
        one = commands.add_parser(name, help=about)
        one.set_defaults(**dict.fromkeys(dests), command=name)
        for (who, names, kind, said), dest in zip(rows, dests, strict=True):
            if str(place) in who:
                flags = [flag for flag in names.split() if flag.startswith("-")]
                what = kind.strip("!")
                how = READS[what] if what in READS else dict(type=_number(what))
                if flags:
                    how = how | dict(dest=dest, required=kind.endswith("!"))
                one.add_argument(*(flags or [dest]), help=said, default=None, **how)
    return whole


def _number(words: str) -> Callable[[str], Any]:
    """A reader of some numbers, for argparse; words: which."""
    least = int(words.split()[-1])
    kind, allowed = NUMBERS.get(words, (int, lambda number: number >= least))

    def read(word: str) -> Any:
        number = kind(word)
        if not allowed(number):
            raise argparse.ArgumentTypeError(f"must be {words}, got {word}")
        return number

    read.__name__ = "number"
    return read
