"""Networks that come with code of their own, from a place in a repository, or from outside of transformers."""

import copy
import json
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import transformers
from conftest import same

from mptlml import MaskedLM

CODE = '''import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput


class Settings(PreTrainedConfig):
    model_type = "small_diffusion"

    def __init__(self, vocab_size=20, width=16, **more):
        super().__init__(**more)
        self.vocab_size, self.width = vocab_size, width


class Network(PreTrainedModel):
    """A masked diffusion network as they come: it sees all tokens, and has no attention mask."""

    config_class = Settings

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.width)
        self.layer = nn.TransformerEncoderLayer(config.width, 2, 32, dropout=0, batch_first=True)
        self.head = nn.Linear(config.width, config.vocab_size)
        self.post_init()

    def get_input_embeddings(self):
        return self.words

    def get_output_embeddings(self):
        return self.head

    def forward(self, input_ids, attention_mask=None):
        return MaskedLMOutput(logits=self.head(self.layer(self.words(input_ids))))
'''


def network(**settings):
    """A Network of the code, with fresh weights."""
    space = {}
    exec(CODE, space)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return space["Network"](space["Settings"](**settings)).eval()


def test_buffers_that_a_file_lacks_are_computed(tmp_path):
    """As files of transformers 5 lack ESM's; with letters apart or together, its tokenizer reads a sequence alike."""
    letters = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWC", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(letters))
    tokenizer = transformers.EsmTokenizer(str(tmp_path / "vocab.txt"))
    size = dict(vocab_size=25, mask_token_id=24, pad_token_id=1, max_position_embeddings=40)
    size |= dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    with torch.random.fork_rng(devices=[]):
        rotary = transformers.EsmConfig(**size, position_embedding_type="rotary")
        saved = transformers.EsmForMaskedLM(rotary)
    tokenizer.save_pretrained(tmp_path)
    weights = {name: value for name, value in saved.state_dict().items() if "inv_freq" not in name}
    assert len(weights) < len(saved.state_dict())
    saved.save_pretrained(tmp_path, state_dict=weights)
    lm = MaskedLM.from_pretrained(str(tmp_path))
    assert lm.encode("EVQL").tolist() == lm.encode("E V Q L").tolist() == [9, 7, 16, 4]


@pytest.mark.parametrize("kind", ["AutoModelForMaskedLM", "AutoModel", "AutoModelForCausalLM"])
def test_a_network_with_code_of_its_own_is_asked_where_it_is_trusted(
    lm, tmp_path, monkeypatch, kind
):
    """A diffusion network without an attention mask: right for texts of one length, and of several."""
    cache = str(tmp_path / "modules")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", cache)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    lm.tokenizer.save_pretrained(tmp_path)
    (tmp_path / "network.py").write_text(CODE)
    made = network(vocab_size=lm.vocab_size)
    made.save_pretrained(tmp_path)
    about = dict(model_type="small_diffusion", vocab_size=lm.vocab_size, architectures=["Network"])
    about |= dict(auto_map={"AutoConfig": "network.Settings", kind: "network.Network"})
    (tmp_path / "config.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="trust_remote_code|contains custom code"):
        MaskedLM.from_pretrained(str(tmp_path), local_files_only=True)
    net = MaskedLM.from_pretrained(str(tmp_path), trust_remote_code=True)
    own, texts = MaskedLM(made, lm.tokenizer), ["the cat sat", "a dog ran on the mat"]
    alone = [own.pseudo_log_likelihood([text]).item() for text in texts]
    same(net.pseudo_log_likelihood(texts), torch.tensor(alone).double(), 1e-5)


class Llada(torch.nn.Module):
    """As networks with code of their own may be: logits, and no more than `takes` of what others have."""

    def __init__(self, base, shift=0):
        super().__init__()
        self.base, self.config, self.shift, self.dtype = base, base.config, shift, base.dtype

    def forward(self, input_ids, attention_mask=None):
        logits = self.base(input_ids, attention_mask=attention_mask).logits
        return SimpleNamespace(logits=logits.roll(-self.shift, 1))


class Mdlm(Llada):
    def get_input_embeddings(self):
        raise NotImplementedError

    def forward(self, input_ids):
        return super().forward(input_ids).logits


class Timed(Llada):
    def forward(self, input_ids, timesteps):
        return super().forward(input_ids)


@pytest.mark.parametrize("kind", [Llada, Mdlm])
def test_a_network_is_judged_by_what_it_does(lm, kind):
    """Without tables of embeddings, a mask token of the tokenizer's, or an attention mask."""
    tokenizer = copy.deepcopy(lm.tokenizer)
    tokenizer.mask_token = None
    net = MaskedLM(kind(lm.model), tokenizer, mask_token="[MASK]")
    texts = ["the cat sat", "a dog ran on the mat"]
    same(net.pseudo_log_likelihood(texts), lm.pseudo_log_likelihood(texts), 1e-5)
    by_number = MaskedLM(kind(lm.model), tokenizer, mask_token=lm.mask_id)
    assert by_number.mask_id == lm.mask_id
    with pytest.raises(ValueError, match="special tokens such as .MASK."):
        net.encode("the [MASK] sat")


@pytest.mark.parametrize(
    "net, token, message",
    [
        (Llada, None, "mask token None is none of .*mask_token="),
        (Llada, "[HOLE]", "mask token '.HOLE.' is none of the model's"),
        (Llada, 10**6, "mask token 1000000 is none of the model's"),
        (Timed, "[MASK]", "about a short text: .*timesteps"),
        (partial(Llada, shift=1), "[MASK]", "for the next token .shifted logits"),
        (lambda model: model.base_model, "[MASK]", "has no vocabulary head"),
    ],
)
def test_a_network_that_does_something_else_is_refused(lm, net, token, message):
    tokenizer = copy.deepcopy(lm.tokenizer)
    tokenizer.mask_token = None
    with pytest.raises(ValueError, match=message):
        MaskedLM(net(lm.model), tokenizer, mask_token=token)


def test_a_network_that_was_saved_in_half_precision_computes_in_single_where_that_is_said(
    lm, tmp_path
):
    copy.deepcopy(lm.model).half().save_pretrained(tmp_path)
    lm.tokenizer.save_pretrained(tmp_path)
    half, single = (
        MaskedLM.from_pretrained(str(tmp_path), float32=float32) for float32 in (False, True)
    )
    scores = [net.pseudo_log_likelihood("the cat sat").item() for net in (half, single, lm)]
    assert abs(scores[1] - scores[2]) < 0.01 and scores[0] != scores[1]
    total = (
        half.masked_marginals("the cat sat").exp().sum(-1)
    )  # what follows the network is in single, too
    assert (total - 1).abs().max() < 1e-5


def test_a_network_whose_head_was_not_saved_is_refused(lm, tmp_path):
    """For it would be random."""
    with torch.random.fork_rng(devices=[]):
        transformers.BertModel(lm.model.config).save_pretrained(tmp_path)
    lm.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="lacks .* weights of BertForMaskedLM"):
        MaskedLM.from_pretrained(str(tmp_path))


@pytest.mark.parametrize("name", ["max_sequence_length", "model_length", "n_positions"])
def test_the_longest_text_goes_by_several_names(lm, name):
    """Networks with code of their own say it as they like; or nobody says it, and it is given."""
    net = network(vocab_size=lm.vocab_size, **{name: 20})
    assert MaskedLM(net, lm.tokenizer).max_tokens == 18
    assert MaskedLM(network(vocab_size=lm.vocab_size), lm.tokenizer, max_tokens=9).max_tokens == 7


def test_a_missing_extra_is_named_when_it_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r'transformers is not.*pip install ".\[text\]"'):
        MaskedLM.from_pretrained("anything")
