"""Masked language models: laws on tiny random networks of five architectures, against loops one mask at a time."""

import dataclasses
import math

import numpy as np
import pytest
import torch
import transformers

from mptlml import chain_rule, exact_curve, objectives, random_masks, random_orders
from mptlml.data.text import make_tokenizer
from mptlml.models.masked_lm import MaskedLM
from mptlml.models.text_curves import RATES, RateCurve, order_gap, spaced_sizes, table2_area

TEXTS = ["the cat sat on the mat", "a dog ran", "the dog and the cat sat", "a mat on a mat on a cat", "run cat run"]
SENTENCE = "the cat sat on the mat"
TOKENIZER = make_tokenizer(TEXTS * 3, 60)
PAD = TOKENIZER.pad_token_id
SIZE = dict(vocab_size=len(TOKENIZER), pad_token_id=PAD, initializer_range=0.3, max_position_embeddings=40)
SMALL = dict(**SIZE, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
CONFIGS = {
    "BERT": transformers.BertConfig(**SMALL, **NO_DROPOUT),
    "RoBERTa": transformers.RobertaConfig(**SMALL),
    "DistilBERT": transformers.DistilBertConfig(**SIZE, dim=16, n_layers=2, n_heads=2, hidden_dim=32),
    "ELECTRA's generator": transformers.ElectraConfig(**SMALL, embedding_size=12),
    "ModernBERT": transformers.ModernBertConfig(
        **SMALL, bos_token_id=None, eos_token_id=None, cls_token_id=None, sep_token_id=None),
}


def tiny(name, batch_tokens=100):
    """A tiny random network in double precision, so that equal means equal."""
    made = MaskedLM.random(CONFIGS[name], TOKENIZER, seed=3, batch_tokens=batch_tokens)
    made.model.double()
    return made


@pytest.fixture(params=CONFIGS, scope="module")
def lm(request):
    return tiny(request.param)


@pytest.fixture(scope="module")
def bert():
    return tiny("BERT")


def one_at_a_time(lm, ids, observed):
    """log p(x_j | x_R) of every masked token: one plain forward pass of a text, every position through the head."""
    shown = [int(t) if seen else lm.tokenizer.mask_token_id for t, seen in zip(ids, observed, strict=True)]
    framed = torch.tensor([[lm.tokenizer.cls_token_id, *shown, lm.tokenizer.sep_token_id]])
    with torch.no_grad():
        answer = lm.model(framed).logits[0, 1:-1].log_softmax(-1)
    return torch.stack([torch.zeros((), dtype=answer.dtype) if seen else answer[j, ids[j]]
                        for j, seen in enumerate(observed)])


def test_the_answer_is_that_of_a_plain_pass(lm, generator):
    ids = lm.encode(SENTENCE)
    observed = random_masks(len(ids), torch.randint(1, len(ids) + 1, (8,), generator=generator), generator=generator)
    answer = lm.at_length(len(ids)).conditional_log_prob(ids.double(), observed)
    truth = torch.stack([one_at_a_time(lm, ids, mask) for mask in observed])
    torch.testing.assert_close(answer, truth, rtol=0, atol=1e-10)
    assert (answer[observed] == 0).all() and (answer[~observed] < 0).all()
    unknown, masked = torch.full((1, 2), math.nan), torch.tensor([False, False])
    assert lm.at_length(2).conditional_log_prob(unknown, masked).isnan().all()  # how likely it is nobody can say
    assert lm.at_length(2).conditional_log_prob(unknown[:0], masked).shape == (0, 2)


def test_a_text_in_a_batch_scores_as_it_does_alone(lm):
    """Padding, sorting by length and batching change nothing; D S(1) is the sum over single holes."""
    for text, value in zip(TEXTS, lm.pseudo_log_likelihood(TEXTS), strict=True):
        ids = lm.encode(text)
        holes = ~torch.eye(len(ids), dtype=torch.bool)
        truth = sum(one_at_a_time(lm, ids, mask).sum() for mask in holes)
        assert value.item() == pytest.approx(truth.item(), abs=1e-10)


def test_chain_rule_is_that_of_score(lm, generator):
    ids = lm.encode(SENTENCE)
    orders = random_orders(len(ids), 3, generator=generator)
    truth = chain_rule(lm.at_length(len(ids)), ids[None].double(), orders)[:, 0]
    torch.testing.assert_close(lm.chain_rule(SENTENCE, orders), truth, rtol=0, atol=1e-10)
    assert order_gap(truth.sum(-1)) > 1e-4  # the orders disagree
    assert order_gap(torch.tensor([0.0, -2.0])).item() == pytest.approx(math.log((1 + math.exp(-2)) / 2) + 1)


def test_no_pass_is_larger_than_allowed_and_the_head_answers_where_it_is_asked():
    lm, tokens, answers = tiny("BERT"), [], []
    lm.model.get_input_embeddings().register_forward_hook(lambda module, given, out: tokens.append(given[0].numel()))
    lm.model.get_output_embeddings().register_forward_hook(lambda module, given, out: answers.append(len(out)))
    lm.pseudo_log_likelihood(TEXTS)
    assert max(tokens) <= lm.batch_tokens < 2 * min(tokens[:-1])
    assert sum(answers) == sum(len(lm.encode(text)) for text in TEXTS)


def test_a_sentence_curve_in_three_units(bert, generator):
    curve = bert.curve(SENTENCE, num_masks=3, generator=generator)
    nats = curve.area().mean
    assert nats == pytest.approx(curve.mean.sum()) and curve.quadrature_error == 0
    assert curve.area("token").mean == pytest.approx(nats / curve.num_tokens)
    assert curve.area("bits per word").mean == pytest.approx(-nats / math.log(2) / 6)


def test_quadrature_error_bounds_that_of_a_convex_curve(bert, generator):
    few = bert.curve(SENTENCE, spaced_sizes(len(bert.encode(SENTENCE)), 5), generator=generator)
    exact = -(np.arange(1, few.num_tokens + 1) / few.num_tokens) ** 2
    bent = dataclasses.replace(few, mean=exact[few.sizes - 1])
    assert 0 < abs(bent.area().mean - exact.sum()) < bent.quadrature_error
    coarse = np.interp(np.arange(1, few.num_tokens + 1), few.sizes[::2], bent.mean[::2]).sum()
    assert bent.quadrature_error == pytest.approx(abs(coarse - bent.area().mean))


def test_spaced_sizes_are_dense_at_the_ends():
    assert spaced_sizes(5, 9).tolist() == [1, 2, 3, 4, 5]
    assert spaced_sizes(101, 5).tolist() == [1, 16, 51, 86, 101]


def curve_of(values, rates, lengths=(10, 10)):
    return RateCurve(np.array(rates), np.array(values), np.array(lengths), 12.0)


@pytest.mark.parametrize("rates", [RATES, (0.15, 0.5, 0.85)])
def test_table2_area_of_a_blind_guess(rates):
    area = table2_area(curve_of([[-math.log(30522)] * 2] * len(rates), rates))
    assert area.mean == pytest.approx(-506.88 * math.log(30522)) and area.stderr == pytest.approx(0, abs=1e-9)


def test_rate_curve_weighs_rows_by_their_length():
    curve = curve_of([[-1.0, -2.0], [-2.0, -5.0]], rates=(0.25, 0.75), lengths=(30, 10))
    np.testing.assert_allclose(curve.mean, [-1.25, -2.75])
    by_token, by_sentence = curve.area(), curve.area("sentence")
    assert (by_token.mean, by_token.stderr, by_token.dof) == pytest.approx((-2, 0.75, 1))
    assert (by_sentence.mean, by_sentence.stderr) == pytest.approx((-40, 15))
    by_word, factor = curve.area("bits per word"), 40 / 12 / math.log(2)
    assert (by_word.mean, by_word.stderr) == pytest.approx((2 * factor, 0.75 * factor))
    assert curve_of([[-1.0]] * 2, (0.3, 0.6), (5,)).share_above(0.8) == pytest.approx(0.2, abs=1e-3)


def test_rate_curve_agrees_with_the_curve_by_size(bert, generator):
    """One row of D tokens: rate r reads the size round(r D), the same score up to the draw of the masks."""
    corpus = bert.sentences([SENTENCE])
    num_tokens = len(corpus.rows[0])
    by_rate = bert.rate_curve(corpus, [0.01, 1 - 0.4 / num_tokens], num_masks=300, generator=generator)
    exact = exact_curve(bert.at_length(num_tokens), corpus.rows[0][None].double()).mean
    assert by_rate.mean[0] == pytest.approx(exact[0], abs=0.15)
    assert by_rate.mean[1] == pytest.approx(exact[-1], abs=1e-9)


def test_what_is_drawn_depends_on_no_batch():
    """One seed, texts of many lengths: alone or together in a batch, each token is shown as it was drawn for it."""
    def scores(batch_tokens):
        lm = tiny("BERT", batch_tokens)
        draw = dict(corruption="80/10/10", generator=torch.Generator().manual_seed(5))
        return lm.rate_curve(lm.sentences(TEXTS), [0.3, 0.9], num_masks=4, **draw).scores

    for batch_tokens in (40, 1024):
        np.testing.assert_allclose(scores(8), scores(batch_tokens), rtol=0, atol=1e-12)


def test_the_answer_is_where_the_data_are(bert, elsewhere):
    ids, observed = torch.full((9, 6), 7.0), torch.arange(6) > 3
    here = bert.at_length(6).conditional_log_prob(ids, observed)
    with elsewhere:
        there = bert.at_length(6).conditional_log_prob(elsewhere.away(ids), elsewhere.away(observed))
        assert there.device == elsewhere.DEVICE and torch.equal(there.cpu(), here)


def test_blocks_run_texts_together(bert):
    corpus = bert.blocks(TEXTS, 5)
    flat = [token for text in TEXTS for token in bert.encode(text).tolist()]
    cut = len(flat) // 5 * 5
    assert torch.cat(corpus.rows).tolist() == flat[:cut]
    assert corpus.num_words == pytest.approx(sum(len(text.split()) for text in TEXTS) * cut / len(flat))
    assert len(bert.blocks(TEXTS, 5, 3).rows) == 3
    assert bert.blocks([SENTENCE, "cat."], len(bert.encode(SENTENCE)), 1).num_words == 6  # the second is not needed


@pytest.mark.parametrize(("corruption", "masked", "any_word"), [("mask", 1.0, 0.0), ("80/10/10", 0.8, 0.1)])
def test_a_corruption_shows_what_it_says(generator, corruption, masked, any_word):
    """Of the same word 30 times, half is chosen: the rest is shown as it is."""
    lm, shown = tiny("BERT"), []
    lm.model.get_input_embeddings().register_forward_hook(lambda module, given, out: shown.append(given[0][:, 1:-1]))
    corpus = lm.sentences(["cat " * 30])
    lm.rate_curve(corpus, [0.5], num_masks=200, corruption=corruption, generator=generator)
    share = torch.bincount(torch.cat(shown).flatten(), minlength=lm.vocab_size).double() / 6_000
    expected = torch.full_like(share, any_word / 2 / lm.vocab_size)
    expected[TOKENIZER.mask_token_id] += masked / 2
    expected[corpus.rows[0][0]] += 1 - (masked + any_word) / 2
    assert ((share - expected).abs() <= 4 * (expected / 6_000).sqrt()).all()


def test_training_by_the_objectives_of_the_book(generator):
    """In training mode alone the adapter is differentiable, and every parameter gets a gradient; float32 stays so."""
    lm = MaskedLM.random(CONFIGS["BERT"], TOKENIZER, seed=3)
    x = torch.stack([lm.encode(SENTENCE)] * 2).float()
    answer = lm.at_length(x.shape[1]).conditional_log_prob(x, x < 0)
    assert answer.dtype == torch.float32 and not answer.requires_grad
    lm.model.train()
    objectives.uniform_size(lm.at_length(x.shape[1]), x, share_masks=False, generator=generator).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in lm.model.parameters())


def test_the_seed_decides_the_weights(bert):
    scores = [MaskedLM.random(CONFIGS["BERT"], TOKENIZER, seed=seed).pseudo_log_likelihood(TEXTS) for seed in (3, 3, 4)]
    assert torch.equal(scores[0], scores[1]) and not torch.equal(scores[0], scores[2])
    assert bert.model.config is not CONFIGS["BERT"]  # saving the model would write into it


NO_MASK = make_tokenizer(TEXTS, 60)
NO_MASK.mask_token = None
T5_SIZE = dict(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)


@pytest.mark.parametrize(("kind", "settings", "tokenizer", "message"), [
    (transformers.GPT2LMHeadModel, {}, TOKENIZER, "causal.*AutoModelForMaskedLM"),
    (transformers.T5ForConditionalGeneration, T5_SIZE, TOKENIZER, "encoder-decoder"),
    (transformers.BertModel, {}, TOKENIZER, "no vocabulary head"),
    (transformers.BertForMaskedLM, {}, NO_MASK, "no mask token"),
    (transformers.BertForMaskedLM, dict(vocab_size=len(TOKENIZER) - 1), TOKENIZER, "load both under the same name"),
    (transformers.BertForMaskedLM, dict(vocab_size=1000), TOKENIZER, "load both under the same name"),
    (transformers.BertForMaskedLM, dict(pad_token_id=3), TOKENIZER, "pads with token 3"),
])
def test_a_model_of_another_kind_or_another_tokenizer_is_refused(kind, settings, tokenizer, message):
    with torch.random.fork_rng(devices=[]):
        model = kind(kind.config_class(**{**SMALL, **settings}))
    with pytest.raises(ValueError, match=message):
        MaskedLM(model, tokenizer)


@pytest.mark.parametrize(("call", "message"), [
    (lambda lm, g: lm.encode("  "), "no tokens"),
    (lambda lm, g: lm.encode("cat " * 50), "50 tokens are more than the model's 38"),
    (lambda lm, g: lm.encode("the [MASK] sat"), "special tokens"),
    (lambda lm, g: lm.sentences("the cat"), "list of at least one text"),
    (lambda lm, g: lm.blocks(TEXTS, 5, 99), "do not make 99 blocks of 5"),
    (lambda lm, g: lm.blocks(TEXTS, 39), "longer than the model's 38"),
    (lambda lm, g: lm.at_length(39), "longer than the model's 38"),
    (lambda lm, g: lm.rate_curve(lm.sentences(TEXTS), corruption="90/10", generator=g), "corruption must be one of"),
    (lambda lm, g: lm.rate_curve(lm.sentences(TEXTS), [0.5, 0.5], generator=g), "rates must increase"),
    (lambda lm, g: lm.rate_curve(lm.sentences(TEXTS), [0.0], generator=g), r"must lie in \(0, 1\]"),
    (lambda lm, g: lm.chain_rule(SENTENCE, [[0, 1]]), "orders must be permutations"),
    (lambda lm, g: lm.at_length(1).conditional_log_prob(torch.tensor([99.0]), torch.tensor([False])), "e.g. 99"),
    (lambda lm, g: lm.curve(SENTENCE, generator=g).area("sentences"), "unit must be one of"),
    (lambda lm, g: tiny("BERT", batch_tokens=0), "batch_tokens must be a whole number"),
])
def test_bad_input_is_refused(bert, generator, call, message):
    with pytest.raises(ValueError, match=message):
        call(bert, generator)


def test_roberta_counts_positions_from_behind_padding():
    """Of 40 positions RoBERTa can use 40 - (pad + 1); two more go to the special tokens."""
    lm = tiny("RoBERTa")
    assert lm.max_tokens == 40 - (PAD + 1) - 2
    ids = lm.encode("cat % " * (lm.max_tokens // 2) + "cat" * (lm.max_tokens % 2)).double()  # % is an unknown word
    assert lm.at_length(lm.max_tokens).conditional_log_prob(ids, ids < 0).isfinite().all()
