"""The words of the command `mptlml`, which are read before what it works with is loaded."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import __version__

NOW = """now: mptlml score TABLE --text FIRST SECOND ... --right COLUMN --model M -o OUT.jsonl
or, for variants: mptlml mutants WILD.fasta --table TABLE --measured COLUMN --model M -o OUT.csv"""
COMMANDS = {
    "score": "one table in, the same table out",
    "mutants": "of a sequence: all, or those of a table",
}
# Which command takes it (+: both), how it is called, how it is read, and what it is.
OPTIONS = """
+       file           path    the table, or the wild type; - is the standard input
+       --model        needed  name or folder of a masked language model
+       -o,--output    out     a new file: .jsonl, .csv or .tsv (usual: scores.jsonl)
+       --text         many    columns, by name or by number from 1; several are alternatives
score   --scores       list    of area,pll,word,left (usual: area,pll)
score   --error        nats    ask for areas until their standard error is about this
score   --right        text    the right alternative: a column, or where a letter, a name, a number from 1 says it
score   --group        text    a column by which right alternatives are counted
score   --long         text    what becomes of a text that is too long: refuse, cut or skip (usual: refuse)
score   --drop         text    characters that are taken out of texts, such as '*-.'
score   --check        on      say what would be refused, and score nothing
score   --resume       on      go on where the output ends
score   --shard        text    I/N: part I of N, from 0 (usual: as SLURM_PROCID or RANK say)
mutants --table        path    of mutants such as A10G:K12R (usual: all single ones)
mutants --measured     text    its column of measured values, to which scores are compared
mutants --plot         path    draw all single mutants: .svg, .png or .pdf
+       --skip         on      leave out rows that cannot be scored; left_out says why
+       --format       text    txt, csv, tsv, jsonl or fasta, where the suffix does not say it
+       --max-tokens   count   the longest text, where the network does not say it
+       --set          many    KEY=VALUE: seed, passes; for loading the model device, revision, mask_token, \
trust_remote_code, allow_unknown, float32, batch_tokens
"""
READS: dict[str, dict[str, Any]] = {
    "text": {},
    "needed": dict(required=True),
    "path": dict(type=Path),
    "out": dict(type=Path, default="scores.jsonl"),
    "many": dict(nargs="+"),
    "list": dict(type=lambda said: said.split(",")),
    "nats": dict(type=float),
    "count": dict(type=int),
    "on": dict(action="store_true"),
}


def parse(words: Sequence[str] | None = None) -> Namespace:
    """The words of a command; those of one that is gone say what to type now."""
    words = words or sys.argv[1:]
    if words and words[0] in ("compare", "choose", "variants"):
        sys.exit(NOW)
    whole = ArgumentParser("mptlml", description="Scores of masked language models.")
    whole.add_argument("--version", action="version", version=f"mptlml {__version__}")
    commands = whole.add_subparsers(dest="command", required=True)
    for command, about in COMMANDS.items():
        one = commands.add_parser(command, help=about)
        for line in OPTIONS.strip().splitlines():
            only, name, reads, said = line.split(None, 3)
            if only in ("+", command):
                one.add_argument(*name.split(","), help=said, **READS[reads])
    return whole.parse_args(words)
