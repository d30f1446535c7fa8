"""`Scorer`: rows of a batch get the scores of plain loops, wherever they stand, and what fails fails alone."""

import pickle
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from conftest import near, seeded

from mptlml.scoring import Scorer
from mptlml.scoring.designs import shared_keys, together
from mptlml.scoring.mutants import offset_of, singles, substitutions, with_marginals
from mptlml.scoring.tables import pd

TEXTS = ["the cat sat", "a dog ran on the mat", "mat", "that ton ran"]
ALL = ("area", "pll", "word", "left")


def test_scores_are_those_of_plain_loops(lm):
    """The area within its error; each token alone, with the later ones of its word, with all later ones; all hidden."""
    found = Scorer(lm, ALL, passes=512)(dict(text=TEXTS, id=[1, 2, 3, 4]))
    assert found["id"] == [1, 2, 3, 4] and found["left_out"] == [None] * 4
    for k, text in enumerate(TEXTS):
        ids = lm.encode(text)
        count = len(ids)
        model, x = lm.at_length(count), ids[None].double()
        word = torch.tensor(lm.tokenizer(text, add_special_tokens=False).word_ids())
        hidden = torch.ones(count, count).bool().triu()
        for score, hides in (
            ("pll", torch.eye(count).bool()),
            ("word", hidden & (word == word[:, None])),
            ("left", hidden),
        ):
            loop = model.conditional_log_prob(x, ~hides).diag().sum().item()
            assert found[score][k] == pytest.approx(loop, abs=1e-4)
        assert found["tokens"][k] == count
        nothing = model.conditional_log_prob(x, torch.zeros(count).bool()).sum().item()
        assert found["hidden"][k] == pytest.approx(nothing, abs=1e-4)
        error = abs(found["area"][k] - lm.exact_curve(text).area().mean)
        assert error < 4 * found["area_error"][k] + 1e-4


def test_a_row_scores_alike_in_any_batch_and_process(lm, folder):
    """What is drawn follows from the seed and the text alone."""
    scorer = Scorer(str(folder), load=dict(local_files_only=True))
    whole = scorer(dict(text=TEXTS))
    other = pickle.loads(pickle.dumps(scorer))(dict(text=np.array(TEXTS[::-1])))
    alone = [Scorer(lm)(dict(text=[text])) for text in TEXTS]
    for name in ("area", "area_error", "pll", "hidden"):
        assert other[name][::-1] == pytest.approx(whole[name], abs=1e-5)
        assert [one[name][0] for one in alone] == pytest.approx(whole[name], abs=1e-5)
    assert Scorer(lm, seed=1)(dict(text=TEXTS))["area"][1] != whole["area"][1]


def test_an_area_is_asked_to_an_error(lm):
    found = Scorer(lm, ("area",), error=0.05)(dict(text=TEXTS[:2]))
    assert max(found["area_error"]) < 0.08 and max(found["passes"]) > 64
    with pytest.raises(ValueError, match="alternatives take passes"):
        Scorer(lm, text=("a", "b"), error=1)


def test_a_letter_is_a_word(lm):
    """Where texts are read letter by letter; what is neither string nor number is no text."""
    scorer = Scorer(lm, ("pll", "word"))
    scorer.spaced = True
    found = scorer(dict(text=["aa", ["a"]]))
    assert found["tokens"][0] == 2 and found["word"] == found["pll"]
    assert "no text" in found["left_out"][1]


def test_alternatives_are_asked_under_the_same_masks(lm):
    """Their difference is that of their areas; ties are none's; who leads by two errors or more is decided."""
    rows = [("the cat sat", "the dog sat", "a"), ("the mat", "the  mat", "mat"), ("a", "a", "a")]
    batch = dict(zip("abc", zip(*rows, strict=True), strict=True))
    found = Scorer(lm, text="a b c".split(), passes=2048)(batch)
    for k, row in enumerate(rows):
        exact = [lm.exact_curve(text).area().mean for text in row]
        areas = [found[f"area_{name}"][k] for name in "abc"]
        gaps = np.array(areas) - areas[0] - exact + exact[0]
        assert (abs(gaps) < 4 * found["area_error"][k] + 1e-4).all()
        best = np.argmax(exact)
        alone = sum(lm.encode(text).equal(lm.encode(row[best])) for text in row) == 1
        assert found["likeliest_area"][k] == ("abc"[best] if alone else None)
        assert found["decided"][k] == alone
    assert [found[f"tokens_{name}"][0] for name in "abc"] == [3, 3, 1]


@pytest.mark.parametrize("first, other", [("abcd", "abxd"), ("abcd", "abd"), ("ab", "abcab")])
def test_common_tokens_share_keys(first, other):
    keys = shared_keys([*map(ord, first)], [*map(ord, other)])
    assert len({*keys}) == len(other)
    assert sum(first[key : key + 1] == other[k] for k, key in enumerate(keys)) == len(
        {*first} & {*other}
    )


def test_shared_masks_are_unbiased_for_each_text():
    """The mean of D times the mean of hidden values is their sum; a common token is hidden in both, or nearly so."""
    keys = [[0, 1, 2, 3, 4], [0, 1, 5]]
    seen = together(4000, keys, seeded(2))
    for own, these in zip(keys, seen, strict=True):
        value = (~these * torch.tensor(own).double()).sum(1) / (~these).sum(1) * len(own)
        assert near(value.view(4000, -1).mean(1), sum(own))
    assert (seen[0][:, 0] == seen[1][:, 0]).double().mean() > 0.8


def test_what_fails_fails_alone(lm, monkeypatch):
    """A missing text, an unknown word, one that is too long, and one that the network cannot stand."""
    texts = [None, " ", "NA", "50 cat", "cat " * 600, "a dog", "the cat"]
    ask = lm.log_probs

    def stumbles(lengths, rows):
        if 2 in lengths and len(lengths) > 1 or lengths == [2] and rows(0).true[0, 0] == dog[0]:
            raise IndexError("index out of range in self")
        return ask(lengths, rows)

    dog = lm.encode("a dog")
    monkeypatch.setattr(lm, "log_probs", stumbles)
    found = Scorer(lm, ("pll",), absent=("na",))(dict(text=texts))["left_out"]
    assert found[:3] == ["missing"] * 3 and found[-1] is None
    assert "does not know" in found[3] and "600 tokens" in found[4] and "IndexError" in found[5]
    skips = Scorer(lm, ("pll",), long="skip", drop="50")(dict(text=texts))["left_out"]
    assert skips[3:5] == [None, "too long"]
    cut = Scorer(lm, ("pll",), long="cut")
    [[text]] = cut.read(dict(text=texts[4:5]))
    assert len(text.ids) == lm.max_tokens


def test_a_score_that_is_not_finite_is_none(lm, monkeypatch):
    scorer = Scorer(lm, ())
    assert scorer.columns == ["hidden", "tokens", "left_out"]
    monkeypatch.setattr(lm, "answers", lambda rows: torch.full(rows.true.shape, -torch.inf)[0])
    assert "no finite score" in scorer(dict(text=["a dog"]))["left_out"][0]


def test_columns_that_are_there_are_not_overwritten(lm):
    with pytest.raises(ValueError, match="columns pll: rename"):
        Scorer(lm)(dict(text=["a"], pll=[1]))


@pytest.mark.parametrize(
    "mutant, found",
    [
        ("A10G", ["A10G"]),
        ("p.Ala10Gly", ["A10G"]),
        ("A10G:K12R", ["A10G", "K12R"]),
        ("p.[Ala10=;Lys12Arg]", ["A10A", "K12R"]),
        ("_wt", []),
        ("WT", []),
        ("A4_Y5insG", None),
        ("A10G:A10K", None),
        ("10", None),
        ("", None),
    ],
)
def test_mutants_are_read_as_tools_write_them(mutant, found):
    if found is not None:
        assert substitutions(mutant) == found
        return
    with pytest.raises(ValueError, match="A10G:K12R"):
        substitutions(mutant)


def test_an_offset_is_found_where_one_alone_fits():
    assert offset_of("MKVLAE", ["M24A", "E29K:A28G", "no mutant"]) == 24
    assert (
        offset_of("AAAA", ["A7G"]) == offset_of("MKVLAE", ["M1A", "X9G"]) == offset_of("M", []) == 1
    )


def test_masked_marginals_are_those_of_the_model_at_each_place(lm):
    """Of all single mutants, and summed over those of a mutant; another's sequence or letter is told."""
    wild, said = "MKM", torch.randn(3, 30, generator=seeded(1)).double()
    letters = dict(zip("ACDEFGHIKLMNPQRSTVWY", range(20), strict=True))
    read = lambda text: [letters[letter] for letter in text.split()]  # noqa: E731
    fake = SimpleNamespace(tokenise=read, masked_marginals=mock.Mock(return_value=said))
    gains = singles(SimpleNamespace(lm=fake, spaced=True), wild, 7)
    assert gains["K8A"] == pytest.approx((said[1, 0] - said[1, letters["K"]]).item())
    assert len(gains) == 60 and gains["M9M"] == 0 and fake.masked_marginals.call_count == 1
    names = ["M7A:K8C", "WT", "A7M", "M7A"]
    table = pd.DataFrame(dict(mutant=names, mutated_sequence=["ACM", "MKM", "AKM", "MKM"]))
    found = with_marginals(table, "mutant", wild, 7, gains)
    assert found.masked_marginal[:2].tolist() == [gains["M7A"] + gains["K8C"], 0]
    assert found.left_out.isna().tolist() == [True, True, False, False]
    assert found.masked_marginal.isna().equals(found.left_out.notna())
