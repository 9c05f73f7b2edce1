"""A real trained encoder-decoder: a BART that turns spelling into phonemes.

What it wrote was checked against transformers' greedy text, live below, and is stored here.
"""

from __future__ import annotations

import numpy as np
import pytest

import npgpt
from tests.gradcheck import relative_error

pytestmark = pytest.mark.real

UNKNOWN = 3
PHONEMES = """
squirrel skwˈɜɹᵊl · transformer tɹænsfˈɔɹməɹ · attention ətˈɛnʃən · encoder ɛŋkˈOdəɹ
decoder dᵻkˈOdəɹ · number nˈʌmbəɹ · beautiful bjˈuɾəfᵊl · knowledge nˈɑləʤ · through θɹˈu
thought θˈɔt · enough ɪnˈʌf · rhythm ɹˈɪðəm · queue kjˈu · psychology sIkˈɑləʤi · island ˈIlənd
wednesday wˈɛdnzdˌA · colonel kˈɑlənᵊl · lieutenant lutˈɛnənt · chocolate ʧˈɑkəlˌAt
photograph fˈOɾəɡɹˌæf · photography fˌOɾəɡɹˈæfi · elephant ˈɛləfənt · giraffe ʤəɹˈæf
banana bənˈɑnə · orange ˈɔɹᵊnʤ · purple pˈɜɹpᵊl · yellow jˈɛlO · silver sˈɪlvəɹ · window wˈɪndO
garden ɡˈɑɹdᵊn · kitchen kˈɪʧᵊn · morning mˈɔɹnɪŋ · evening ˈivənɪŋ · yesterday jˈɛstəɹdˌA
tomorrow təmˈɔɹO · language lˈæŋɡwɪʤ · grammar ɡɹˈæməɹ · sentence sˈɛntᵊns · question kwˈɛsʧən
answer ˈænsəɹ · machine məʃˈin · computer kəmpjˈuɾəɹ · gradient ɡɹˈAdiənt · matrix mˈAtɹɪks
vector vˈɛktəɹ · tensor tˈɛnsəɹ · embedding ɛmbˈɛdɪŋ · position pəzˈɪʃən · residual ɹəzˈɪʤəwəl
normal nˈɔɹmᵊl · dropout dɹˈɑpWt · softmax sˈɔftmæks
"""
SAID = dict(pair.split() for line in PHONEMES.strip().splitlines() for pair in line.split(" · "))


@pytest.fixture(scope="module")
def folder(data_dir):
    return data_dir / "checkpoints" / "bart-g2p-us"


@pytest.fixture(scope="module")
def model(folder):
    return npgpt.from_pretrained(folder)


def spelled(model, word):
    """Ids of the letters, between begin and end."""
    letters = model.config.other["grapheme_chars"]
    ids = [letters.index(letter) if letter in letters else UNKNOWN for letter in word]
    return [model.config.bos_token_id, *ids, model.config.eos_token_id]


def spoken(model, ids):
    """Phonemes of the ids; the first four are marks."""
    return "".join(model.config.other["phoneme_chars"][i] for i in ids if i > UNKNOWN)


def test_squirrel(model) -> None:
    assert spoken(model, model.generate(spelled(model, "squirrel"))) == "skwˈɜɹᵊl"


def test_52_words(model) -> None:
    assert len(SAID) == 52
    said = {word: spoken(model, model.generate(spelled(model, word))) for word in SAID}
    assert said == SAID


def test_side_by_side_with_padding(model) -> None:
    """Words of different length in one batch come out as alone."""
    words = [spelled(model, word) for word in SAID]
    longest = max(map(len, words))
    mask = np.arange(longest) < np.array([len(ids) for ids in words])[:, None]
    padded = np.array([ids + [0] * (longest - len(ids)) for ids in words])
    written = model.generate(padded, attention_mask=mask)
    assert [spoken(model, ids) for ids in written] == list(SAID.values())


def test_size_and_what_the_configuration_asks_for(model) -> None:
    assert model.num_params() == 751_488
    config = model.config
    assert (config.d_model, config.encoder_layers, config.activation) == (128, 1, "gelu")
    assert model.generate(spelled(model, "squirrel"), max_new_tokens=4)[-1] == 2  # forced to end


@pytest.fixture(scope="module")
def reference(hf, folder):
    from transformers import BartForConditionalGeneration

    return BartForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").eval()


@pytest.mark.hf
@pytest.mark.parametrize("num_beams", [1, 4])
def test_text_is_that_of_transformers(model, reference, num_beams) -> None:
    import torch

    for word in list(SAID)[:: 1 if num_beams == 1 else 4]:
        ids = spelled(model, word)
        want = reference.generate(
            torch.tensor([ids]), max_new_tokens=63, num_beams=num_beams, do_sample=False
        )
        got = model.generate(ids, max_new_tokens=63, num_beams=num_beams)
        assert got == want[0, 1:].tolist(), word


@pytest.mark.hf
def test_logits_are_those_of_transformers(model, reference) -> None:
    import torch

    ids, target = spelled(model, "squirrel"), [1, 37, 9]
    with torch.no_grad():
        want = reference(torch.tensor([ids]), decoder_input_ids=torch.tensor([target])).logits[0]
    assert relative_error(model(ids, target), want.numpy()) < 1e-5
