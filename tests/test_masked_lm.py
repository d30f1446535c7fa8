"""Masked language models: laws on tiny random networks of five architectures, against loops mask by mask."""

import math

import numpy as np
import pytest
import torch
import transformers
from conftest import same as close
from conftest import seeded
from fakes import random_network

from mptlml import memory, objectives, order_gap, order_spread, random_masks, random_orders
from mptlml.masked_lm import MaskedLM, Rows, spaced_sizes
from mptlml.scoring import Scorer
from mptlml.testing import Case, check_model
from mptlml_book.data.text import make_tokenizer
from mptlml_book.rates import RATES, RateCurve, over_rows, rate_curve, table2_area

SENTENCE = "the cat sat on the mat"
TEXTS = [SENTENCE, "a dog ran", "the dog and the cat sat", "a mat on a mat on a cat", "run cat run"]
TOKENIZER = make_tokenizer(TEXTS * 3, 60)
PAD = TOKENIZER.pad_token_id
SIZE = dict(vocab_size=len(TOKENIZER), pad_token_id=PAD, initializer_range=0.3)
SIZE |= dict(max_position_embeddings=40)
WIDTHS = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
SMALL = SIZE | WIDTHS
NO_FRAME = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
CONFIGS = {
    "BERT": transformers.BertConfig(**SMALL, **NO_DROPOUT),
    "RoBERTa": transformers.RobertaConfig(**SMALL),
    "DistilBERT": transformers.DistilBertConfig(**SMALL, hidden_dim=32),
    "ELECTRA's generator": transformers.ElectraConfig(**SMALL, embedding_size=12),
    "ModernBERT": transformers.ModernBertConfig(**SMALL, **NO_FRAME),
}


def made(config=CONFIGS["BERT"], seed=3, **options):
    """A tiny random network."""
    return MaskedLM.random(config, TOKENIZER, seed=seed, **options)


def tiny(name, batch_tokens=100):
    """One in double precision, so that equal means equal."""
    lm = made(CONFIGS[name], batch_tokens=batch_tokens)
    lm.model.double()
    return lm


def heard(module, record):
    """record(what goes in, what comes out) whenever the module is called, from now on or in a `with` block."""
    return module.register_forward_hook(lambda module, given, out: record(given[0], out))


@pytest.fixture(params=CONFIGS, scope="module")
def lm(request):
    return tiny(request.param)


@pytest.fixture(scope="module")
def bert():
    return tiny("BERT")


def every_word(lm, ids, observed):
    """log p(x_j = v | x_R) [D, V]: one plain forward pass of a text, every position through the head."""
    shown = ids.where(observed, TOKENIZER.mask_token_id)
    framed = torch.tensor([[TOKENIZER.cls_token_id, *shown, TOKENIZER.sep_token_id]])
    with torch.no_grad():
        return lm.model(framed).logits[0, 1:-1].log_softmax(-1)


def one_at_a_time(lm, ids, observed):
    """log p(x_j | x_R) of every masked token, 0 at observed ones."""
    return every_word(lm, ids, observed)[range(len(ids)), ids] * ~observed


def same(found, expected, atol=1e-10):
    close(found, expected, atol)


def test_the_answer_is_that_of_a_plain_pass(lm, generator):
    """At masked and at seen tokens, over the whole vocabulary."""
    ids = lm.encode(SENTENCE)
    view, sizes = lm.at_length(len(ids)), torch.randint(1, len(ids) + 1, (8,), generator=generator)
    observed = random_masks(len(ids), sizes, generator=generator)
    truth = torch.stack([every_word(lm, ids, mask) for mask in observed])
    same(view.vocabulary_log_prob(ids, observed), truth)
    answer = view.conditional_log_prob(ids.double(), observed)
    same(answer, truth[:, range(len(ids)), ids] * ~observed)
    assert (answer[observed] == 0).all() and (answer[~observed] < 0).all()


def test_an_unknown_token_is_as_likely_as_nobody_can_say(lm):
    unknown, masked = torch.full((1, 2), math.nan), torch.tensor([False, False])
    assert lm.at_length(2).conditional_log_prob(unknown, masked).isnan().all()


def test_a_text_in_a_batch_scores_as_it_does_alone(lm):
    """Padding, sorting by length and batching change nothing; D S(1) is the sum over single holes."""
    for text, value in zip(TEXTS, lm.pseudo_log_likelihood(TEXTS), strict=True):
        ids = lm.encode(text)
        holes = ~torch.eye(len(ids), dtype=torch.bool)
        alone = torch.stack([every_word(lm, ids, hole)[j] for j, hole in enumerate(holes)])
        same(lm.masked_marginals(text), alone)
        same(value, alone[range(len(ids)), ids].sum())


def test_chain_rule_is_that_of_score(lm, generator):
    """Every order step by step."""
    ids = lm.encode(SENTENCE)
    orders = random_orders(len(ids), 3, generator=generator)
    truth = torch.zeros(3, len(ids)).double()
    for q, order in enumerate(orders):
        for t, token in enumerate(order):
            observed = torch.ones(len(ids), dtype=torch.bool).index_fill(0, order[: t + 1], False)
            truth[q, t] = one_at_a_time(lm, ids, observed)[token]
    same(lm.chain_rule(SENTENCE, orders), truth)
    assert order_gap(truth.sum(-1)) > 1e-4  # the orders disagree


def test_the_head_answers_once_for_each_token_of_an_order(lm, generator):
    """Not for all that are masked."""
    ids, answers = lm.encode(SENTENCE).expand(2, -1), []
    with heard(lm.model.get_output_embeddings(), lambda given, out: answers.append(len(out))):
        spread = order_spread(lm.at_length(6), ids, num_orders=3, generator=generator)
    assert spread.shape == (2,) and spread[0] == spread[1] > 1e-4 and sum(answers) == 6 * 6


def test_rows_are_made_once_when_their_turn_comes_and_share_passes(bert):
    """A long text goes through a few rows at a time; short ones, of several lengths, go together."""
    made, passes, counts, lengths = [], [], [20, 3, 2], [8, 1, 2]

    def rows(i):
        made.append(i)
        return Rows(*torch.full((2, counts[i], lengths[i]), 7))

    found = bert.log_probs(lengths, rows)
    with heard(bert.model.get_input_embeddings(), lambda given, out: passes.append(len(given))):
        assert made == [] and next(found)[0] == 1 and made == [1, 2, 0] and passes == [5]
        assert next(found)[1].shape == (4,) and next(found)[1].shape == (160,)
        assert made == [1, 2, 0] and passes[1:] == [10, 10]  # of ten tokens, 100 at once
        with memory.limit(4 * 10 * bert.vocab_size):  # four rows of ten tokens
            assert len([*bert.log_probs([8], lambda _: rows(0))]) == 1 and passes[3:] == 5 * [4]


def test_the_laws(bert):
    values = tuple(map(float, range(bert.vocab_size)))
    for words in (True, False):
        check_model(bert.at_length(2), values=values, words=words)
    with pytest.raises(AssertionError, match="area_and_orders"):
        check_model(Case(lambda: bert.at_length(2), 2, values=values, coherent=True))


def test_a_curve_has_all_sizes_and_the_noise_of_its_masks(bert, generator):
    for text in TEXTS:
        curve = bert.curve(text, num_masks=3, generator=generator)
        assert curve.sizes.tolist() == [*range(1, len(bert.encode(text)) + 1)]
        # all is hidden: no noise
        np.testing.assert_allclose(curve.mean[-1], curve.scores[-1], atol=1e-10)
        np.testing.assert_allclose(curve.variance, curve.scores.var(1, ddof=1) / 3, atol=1e-12)
    assert (bert.curve(SENTENCE, num_masks=3, generator=generator).variance[1:-1] > 1e-8).all()
    found = [bert.curve(SENTENCE, generator=seeded(seed)).scores for seed in (4, 4, 5)]
    assert found[0].shape == (6, 1)  # one mask a size, where none are asked for
    assert np.array_equal(found[0], found[1]) and (found[1] != found[2]).any()


def test_spaced_sizes_are_dense_at_the_ends():
    assert spaced_sizes(8, 9).tolist() == [*range(1, 9)] == spaced_sizes(8, 8).tolist()
    assert spaced_sizes(101, 5).tolist() == [1, 16, 51, 86, 101]


def curve_of(values, rates, lengths=(10, 10)):
    return RateCurve(np.array(rates), np.array(values), np.array(lengths))


def test_table2_area_sums_99_rates_off_straight_lines():
    """Each row counts by its length, in the mean and in the error."""
    rates, scores = (0.15, 0.5, 0.85), np.array([[-1.0, -1.0], [-2.0, -2.0], [-5.0, -8.0]])
    area = table2_area(curve_of(scores, rates, (6, 2)))
    rows = 5.12 * np.array([np.interp(RATES, rates, own).sum() for own in scores.T])
    error = 0.375 * (rows[0] - rows[1])
    assert (area.mean, area.stderr) == pytest.approx((0.75 * rows[0] + 0.25 * rows[1], error))


SLOPES = [(-1.0, -2.0), (-2.0, -8.0)]


def test_rate_curve_weighs_rows_by_their_length():
    """By hand: level up to the first size and from the last one on, a straight line between them."""
    curve = curve_of(np.transpose(SLOPES), rates=(0.5, 1), lengths=(6, 2))
    np.testing.assert_allclose(curve.mean, [-1.25, -3.5])
    first = -3 - (4 + 5 + 6) / 3  # sizes 1, 2, 3 and 4, 5, 6 of six tokens
    np.testing.assert_allclose(curve.row_areas, [first, -10])
    area, rows = curve.area(), over_rows(curve.row_areas, np.ones(2))  # -8, -10
    error = 2 * 0.75 * 0.25 * (5 - 8 / 6)
    assert (area.mean, area.stderr) == pytest.approx((-18 / 8, error))
    assert (rows.mean, rows.stderr) == pytest.approx((-9, 1))
    assert curve.share_above(0.75) == pytest.approx((11 / 3 + 8) / 18)


def test_rate_curve_scores_what_it_says(bert, generator):
    """Text by text and mask by mask: what was hidden is read off the passes, and scored by plain ones."""
    lm, shown = tiny("BERT", 8), []
    rows = lm.read(TEXTS[:2])
    with heard(lm.model.get_input_embeddings(), lambda given, out: shown.append(given[0, 1:-1])):
        scores = rate_curve(lm, rows, [0.01, 0.9], num_masks=2, generator=generator).scores
        rate_curve(lm, rows, [0.5], generator=generator)  # one mask each, by default
    assert len(shown) == 8 + 2
    # the shorter text first, its rates in turn
    order = sorted((0, 1), key=lambda i: len(rows[i]))
    for i, part in zip(order, (shown[:4], shown[4:8]), strict=True):
        ids, seen = rows[i], torch.stack(part) != TOKENIZER.mask_token_id
        truth = torch.stack([one_at_a_time(lm, ids, mask) for mask in seen]).sum(-1)
        hidden = (~seen).sum(-1)
        most = round(0.9 * len(ids))
        assert hidden.tolist() == [1, 1, most, most]
        expected = truth.view(2, 2).sum(-1) / hidden.view(2, 2).sum(-1)
        same(scores[:, i], expected, 1e-10)


def test_blocks_run_texts_together(bert):
    flat = [token for text in TEXTS for token in bert.encode(text).tolist()]
    assert torch.cat(bert.blocks(TEXTS, 5)).tolist() == flat[: len(flat) // 5 * 5]
    assert len(bert.blocks(TEXTS, 5, 3)) == 3
    assert len(bert.blocks([SENTENCE, "50"], 6, 1)) == 1  # the second text is not needed


REFORMER = SIZE | dict(
    hidden_size=16,
    num_attention_heads=2,
    feed_forward_size=32,
    attention_head_size=8,
    axial_pos_shape=[16, 32],
    axial_pos_embds_dim=[8, 8],
    is_decoder=False,
    max_position_embeddings=512,
)
SEE_PADDING = [
    transformers.FNetConfig(**SIZE, hidden_size=16, num_hidden_layers=2, intermediate_size=32),
    transformers.ConvBertConfig(**SMALL | NO_DROPOUT, embedding_size=16),
    transformers.ReformerConfig(**REFORMER, attn_layers=["local"] * 2, local_attn_chunk_length=8),
]


@pytest.mark.parametrize("config", SEE_PADDING, ids=lambda config: config.model_type)
def test_a_network_that_sees_padding_gets_none(config):
    """It has no attention mask, or not everywhere: rows of one length share a pass, a padded row is refused."""
    lm = made(config)
    alone = torch.cat([lm.pseudo_log_likelihood([text]) for text in TEXTS])
    same(lm.pseudo_log_likelihood(TEXTS + TEXTS), torch.cat([alone, alone]), 1e-4)
    with pytest.raises(ValueError, match="sees padding.*one length at a time"):
        padded(lm, 3)


def padded(lm, length):
    """What a network says of a row that ends in padding."""
    ids = torch.full((1, length), 7).index_fill(1, torch.tensor(length - 1), PAD)
    return lm.at_length(length).conditional_log_prob(ids, torch.arange(length) > 0)


def test_a_network_that_attends_in_blocks_is_asked_about_rows_beyond_them():
    """A Reformer whose blocks are 128 tokens wide. With hashes it draws at random, and is refused."""
    local = made(
        transformers.ReformerConfig(**REFORMER, attn_layers=["local"], local_attn_chunk_length=128)
    )
    assert padded(local, 100)[0, 0] < 0
    with pytest.raises(ValueError, match="sees padding"):
        padded(local, 300)
    config = transformers.ReformerConfig(**REFORMER, attn_layers=["local", "lsh"])
    with torch.random.fork_rng(devices=[]), pytest.raises(ValueError, match="draws at random"):
        made(config)


def test_there_are_gradients_in_training_mode_alone():
    lm = made()
    ids = lm.encode(SENTENCE).expand(2, -1)
    answer = lm.at_length(6).conditional_log_prob(ids, ids < 0)
    assert answer.dtype == torch.float32 and not answer.requires_grad
    lm.model.train()
    objectives.stratified_size(lm.at_length(6), ids, generator=seeded(1)).backward()
    assert all(
        p.grad.isfinite().all() and p.grad.any() for p in lm.model.base_model.encoder.parameters()
    )


def test_dropout_is_not_taken_for_padding_that_is_seen():
    """Though with it a network in training answers otherwise each time."""
    long = made(transformers.BertConfig(**SMALL | dict(max_position_embeddings=300)))
    long.model.train()
    with torch.random.fork_rng(devices=[]):
        assert padded(long, 180).isfinite().all()


def test_a_row_that_ends_in_padding_answers_as_it_does_alone(bert, generator):
    rows = [bert.encode(text) for text in TEXTS]
    longest = max(map(len, rows))
    x = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    lengths = torch.tensor([len(row) for row in rows])
    observed = torch.rand(x.shape, generator=generator) < 0.5
    observed |= torch.arange(longest) >= lengths[:, None]
    answer = bert.at_length(longest).conditional_log_prob(x, observed)
    for row, seen, values in zip(rows, observed, answer, strict=True):
        same(values[: len(row)], one_at_a_time(bert, row, seen[: len(row)]))
        assert not values[len(row) :].any()


def test_the_seed_decides_the_weights(bert):
    scores = [made(seed=seed).pseudo_log_likelihood(TEXTS) for seed in (3, 3, 4)]
    assert torch.equal(scores[0], scores[1]) and not torch.equal(scores[0], scores[2])
    assert bert.model.config is not CONFIGS["BERT"]  # saving the model would write into it


OTHERS = [  # a class of networks, its settings, and what is said of them
    ("GPT2LMHeadModel", {}, "causal.*take an encoder that was trained as"),
    ("BartForConditionalGeneration", dict(d_model=16), "encoder-decoder"),
    (
        "NystromformerForMaskedLM",
        dict(segment_means_seq_len=12, num_landmarks=3),  # its landmarks take 3 at a time
        "cannot be asked about a short text",
    ),
    ("BertForMaskedLM", dict(initializer_range=math.inf), "answers are NaN"),
    ("BertForMaskedLM", dict(vocab_size=len(TOKENIZER) - 1), "load both under the same"),
    ("BertForMaskedLM", dict(vocab_size=1000), "load both under the same name"),
]


@pytest.mark.parametrize("name, settings, message", OTHERS)
def test_a_model_of_another_kind_is_refused(name, settings, message):
    kind = getattr(transformers, name)
    with torch.random.fork_rng(devices=[]):
        model = kind(kind.config_class(**SMALL | settings))
    with pytest.raises(ValueError, match=message):
        MaskedLM(model, TOKENIZER)


def test_a_tokenizer_without_words_is_refused(bert):
    special = {word: k for k, word in enumerate(TOKENIZER.all_special_tokens)}
    with pytest.raises(ValueError, match="has 0 words"):
        MaskedLM(bert.model, transformers.BertTokenizer(special))


def test_answers_of_another_shape_and_unreadable_frames_are_refused(monkeypatch):
    model = tiny("BERT").model
    model.cls.predictions.decoder = torch.nn.Identity()  # 16 wide, and no word
    with pytest.raises(ValueError, match="answers with shape"):
        MaskedLM(model, TOKENIZER)
    read = type(TOKENIZER).__call__

    def misread(tokenizer, text, add_special_tokens):
        text = "cat" if add_special_tokens else text
        return read(tokenizer, text, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(type(TOKENIZER), "__call__", misread)
    with pytest.raises(ValueError, match="cannot tell a text's own tokens"):
        MaskedLM(model, TOKENIZER)


def test_roberta_counts_positions_from_behind_padding():
    """Of 40 positions RoBERTa can use 40 - (pad + 1); two more go to the special tokens."""
    lm = tiny("RoBERTa")
    assert lm.max_tokens == 40 - (PAD + 1) - 2
    ids = lm.encode("cat " * lm.max_tokens)
    assert lm.at_length(lm.max_tokens).conditional_log_prob(ids, ids < 0).isfinite().all()


def test_an_unknown_word_is_refused_by_its_place_unless_that_is_said():
    """A vocabulary of residues, as protein models have it, which may want them apart."""
    words = {word: k for k, word in enumerate([*TOKENIZER.all_special_tokens, *"EVQL"])}
    tokenizer = transformers.BertTokenizer(words, do_lower_case=False)
    lm = random_network(tokenizer)
    with pytest.raises(ValueError, match="token 3 of 4 in 'E V X X', and 2 in all"):
        lm.pseudo_log_likelihood(["E V X X"])
    assert random_network(tokenizer, allow_unknown=True).pseudo_log_likelihood("E V X X").isfinite()
    spaced = Scorer(lm, ("pll",))(dict(text=["EV\nQL"]))["pll"]  # letter by letter
    assert spaced == pytest.approx(lm.pseudo_log_likelihood("E V Q L").tolist(), abs=1e-5)


def test_a_text_that_is_too_long_is_read_through_windows(bert):
    """A token in the middle is predicted from as much around it as the model takes, the ends from what there is."""
    ids = torch.tensor(bert.tokenise(" ".join(SENTENCE.split() * 10)))
    with pytest.raises(ValueError, match="60 tokens are more than the model's 38"):
        bert.encode(" ".join(SENTENCE.split() * 10))
    [scores] = bert.single_scores(ids)
    for place, first in ((0, 0), (30, 11), (59, 22)):
        window = ids[first : first + 38]
        hole = torch.arange(38) != place - first
        same(scores[place], one_at_a_time(bert, window, hole)[place - first])
