"""Which of several answers is likeliest, and mutants of a wild type: in Python and by the command."""

import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from fakes import saved_network
from scipy import stats

from mptlml import MaskedLM
from mptlml.scoring import choose
from mptlml.scoring.command import rank_interval
from mptlml.scoring.sequences import mutated

WILD = "MKVLAE"
ANSWERS = [["the cat sat", "a dog", "the mat sat"], ["a", "the"], ["a cat", "a  cat"]]


@pytest.fixture(scope="module")
def proteins(tmp_path_factory):
    """A folder with a tiny network of single residues, as AntiBERTy's tokenizer reads them."""
    folder = tmp_path_factory.mktemp("proteins")
    saved_network(folder, "A C D E F G H I K L M N P Q R S T V W Y")
    return folder


@pytest.fixture
def variants(run, proteins):
    """The command's own name: it scores mutants of WILD by the network of residues."""
    Path("wild.fasta").write_text(f">P1 one\n{WILD[:3]}\n{WILD[3:]}\n")
    return lambda line, model=proteins: run(f"variants wild.fasta --mutations m.csv {line}", model)


def test_the_likeliest_answer_is_chosen_and_says_whether_it_is_sure(lm, generator):
    found = choose(lm, ANSWERS, generator=generator)
    for answers, choice in zip(ANSWERS, found, strict=True):
        areas = [lm.exact_curve(text).area().mean for text in answers]
        assert choice.answer == int(np.argmax(np.round(areas, 6)))
        assert choice.decided == (len({*np.round(areas, 6)}) == len(areas))
    assert [choice.passes for choice in found] == [17, 2, 0] or found[0].passes < 30
    with pytest.raises(ValueError, match="at least two answers each"):
        choose(lm, [["a"]], generator=generator)


def test_one_sign_that_is_not_sure_leaves_a_choice_undecided(lm, generator, monkeypatch):
    """Also where the signs before and after it are sure: each at a level that leaves both right."""
    levels, told = [], []

    def compare(*_, level, **__):
        levels.append(level)
        return [SimpleNamespace(difference=1, sure=told.pop(0), passes=5)]

    monkeypatch.setattr("mptlml.scoring.pairs.compare", compare)
    for signs in ([False, True], [True, False], [True, True]):
        told += signs
        [choice] = choose(lm, [["a", "the", "cat"]], level=0.9, generator=generator)
        assert choice == (0, all(signs), 10)
    assert levels == pytest.approx([0.95] * 6)


def test_the_command_chooses_and_counts_by_group(run, lm, capsys):
    table = pd.DataFrame(
        [("the cat", "a dog", "x"), ("a", "the", "y"), ("a dog sat", "a", "x")],
        columns=["good", "bad", "UID"],
    )
    table.to_csv("q.csv", index=False)
    words = "choose q.csv --columns good bad --right good --group UID"
    lines, said = run(words), capsys.readouterr().out
    good, bad = ([lm.exact_curve(x).area().mean for x in table[name]] for name in ("good", "bad"))
    right = np.greater(good, bad)
    assert [line["chosen"] == 1 for line in lines] == [*right] and lines[0]["UID"] == "x"
    error = right.std() / math.sqrt(3)
    assert f"right by area, all (3): {right.mean():.1%} +- {error:.1%}" in said
    assert "right by area, UID x (2)" in said and "decided at 0.95: 3" in said
    lines = run(f"{words} --pseudo-log-likelihood --overwrite")
    for line, row in zip(lines, table[["good", "bad"]].values.tolist(), strict=True):
        scores = lm.pseudo_log_likelihood(row)
        assert line["pseudo_log_likelihoods"] == pytest.approx(scores, abs=1e-5)
        assert line["likeliest_singly"] == 1 + scores.argmax() and "chosen" not in line


@pytest.mark.parametrize("labels", ["0 1", "1 2", "A B", "a c", "one A"])
def test_the_right_answer_is_a_number_a_letter_or_its_text(run, labels):
    first, second = labels.split()
    Path("q.csv").write_text(f"one,two,label\na,the cat,{first}\nthe,c,{second}\n")
    words = "choose q.csv --columns one two --right label --pseudo-log-likelihood --allow-unknown"
    expected = [1, 1] if second == "A" else [1, 2]
    assert [line["right"] for line in run(words)] == expected


@pytest.mark.parametrize(
    "mutant, offset, text",
    [
        ("K2A", 1, "MAVLAE"),
        ("K2A:E6G", 1, "MAVLAG"),
        ("K25A;A28V", 24, "MAVLVE"),
        ("WT", 1, WILD),
        ("_wt", 5, WILD),
        ("M1M", 1, WILD),
        ("E2A", 1, "E2A: letter 2 of the wild type is K, so the first letter may have"),
        ("K2A:K2V", 1, "K2V: letter 2 of the wild type is K, and is replaced twice"),
        ("K2A", 10, "K2A: the wild type has the letters 10 to 15"),
        ("K0A", 1, "K0A: the wild type has the letters 1 to 6"),
        ("p.Lys2Ala", 1, "MAVLAE"),
        ("p.[Lys2Ala;Glu6Gly]", 1, "MAVLAG"),
        ("p.(Lys2=)", 1, WILD),
        ("K2A_E6G", 1, "MAVLAG"),
        ("K-1A", -2, "MAVLAE"),
        ("p.Lys2fs", 1, "'K2fs' is no substitution"),
        ("k2A", 1, "k2A: letter 2 of the wild type is K"),
        ("K2-", 1, "'K2-' is no substitution"),
        ("K2del", 1, "'K2del' is no substitution"),
        ("", 1, "'' is no substitution"),
    ],
)
def test_a_mutant_is_read_against_its_wild_type(mutant, offset, text):
    if " " in text:
        with pytest.raises(ValueError, match=re.escape(text)):
            mutated(WILD, mutant, offset)
    else:
        assert mutated(WILD, mutant, offset) == text


def test_the_command_scores_variants(variants, proteins, capsys):
    """Masked marginals, and with options the differences of two other scores; columns come along."""
    table = "mutant,fitness,note\nK2A,1.5,a\nK2A:E6G,-1,b\nWT,0,\nV3C, NA,c\nL4Y,2,d\n"
    Path("m.csv").write_text(table)
    lines = variants("--column mutant --measured fitness --pseudo-log-likelihood --areas")
    said, lm = capsys.readouterr().out, MaskedLM.from_pretrained(str(proteins), spaced=True)
    marginals, ids = lm.masked_marginals(WILD), lm.encode(WILD)
    for line, text in zip(lines, ["MAVLAE", "MAVLAG", WILD, "MKCLAE", "MKVYAE"], strict=True):
        own = lm.encode(text)
        gain = sum(marginals[j, own[j]] - marginals[j, ids[j]] for j in range(6))
        own, wild = lm.pseudo_log_likelihood([text, WILD])
        area, wild_area = (lm.exact_curve(each).area().mean for each in (text, WILD))
        scores = [line[name] for name in ("masked_marginal", "pseudo_log_likelihood", "difference")]
        assert scores == pytest.approx([float(gain), float(own - wild), area - wild_area], abs=1e-5)
    assert (lines[0]["name"], lines[0]["note"]) == ("P1", "a")
    known = [lines[k]["masked_marginal"] for k in (0, 1, 2, 4)]
    rank = stats.spearmanr(known, [1.5, -1, 0, 2]).statistic
    assert f"rank correlation with fitness (4): {rank:.2f} (" in said


@pytest.mark.parametrize(
    "words, message",
    [
        ("--column mutant --measured height", "has no column 'height', but mutant, fitness"),
        ("--column mutant --measured fitness", "line 3: fitness is 'high', no number"),
        ("--column mutant --offset 3", "line 2: K2A: the wild type has the letters 3 to 8"),
        ("", "m.csv has the columns mutant, fitness: say which is meant"),
        ("--column mutant --measured mutant", "mutant of m.csv is read as a text"),
        ("--column mutant --level 0.9", "--passes and --level are of areas"),
        ("--column mutant --no-header", "m.csv has no column 'mutant', but 1, 2"),
    ],
)
def test_a_table_of_mutants_that_does_not_fit_is_refused(variants, words, message):
    Path("m.csv").write_text("mutant,fitness\nK2A,1\nV3C,high\n")
    with pytest.raises(SystemExit, match=re.escape(message)):
        variants(words)


def test_a_value_that_is_none_is_not_compared(variants, capsys):
    Path("m.csv").write_text("mutant,fitness\nK2A,1\nV3G,nan\nV3A,\nL4A,3\nA5K,2\n")
    lines = variants("--column 1 --measured 2")
    rank = stats.spearmanr([lines[k]["masked_marginal"] for k in (0, 3, 4)], [1, 3, 2]).statistic
    said = capsys.readouterr().out
    assert f"rank correlation with fitness (3): {rank:.2f}\n" in said and "nan" not in said


def test_an_interval_of_ranks_covers(generator):
    """By samples of a normal pair whose rank correlation is known."""
    slope, count, runs = 0.5, 40, 400
    truth = 6 / math.pi * math.asin(slope / 2)
    x, noise = torch.randn(2, runs, count, generator=generator).numpy()
    y = slope * x + math.sqrt(1 - slope**2) * noise
    ends = [rank_interval(*pair) for pair in zip(x, y, strict=True)]
    covered = np.mean([low <= truth <= high for low, _, high in ends])
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / runs)
