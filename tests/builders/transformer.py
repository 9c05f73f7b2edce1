"""Tiny encoder-decoders with the scales of trained ones, and a Marian in a folder."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.models.transformer.config import TransformerConfig, init_params
from npgpt.models.transformer.model import Transformer

# No two sizes agree, so that a swapped axis cannot go unnoticed.
SIZES: dict[str, Any] = {
    "vocab_size": 19,
    "max_position_embeddings": 17,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 10,
    "decoder_ffn_dim": 14,
    "pad_token_id": 18,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}
DIALECTS: dict[str, dict[str, Any]] = {
    "2017": {},
    "bart": {"model_type": "bart"},
    "marian": {"model_type": "marian", "activation_function": "swish"},
    "two tables": {
        "model_type": "marian",
        "share_encoder_decoder_embeddings": False,
        "decoder_vocab_size": 13,
        "pad_token_id": 12,
        "tie_word_embeddings": False,
    },
}
ENGLISH = """the cat sat on the mat because it was tired
a dog chased the cat around the garden
every morning the old king walked to the river
she reads a book about the sea and the stars
there is nothing new under the sun
"""
CHINESE = """猫坐在垫子上因为它累了
狗在花园里追猫
每天早晨老国王走到河边
她读一本关于大海和星星的书
太阳底下没有新鲜事
"""
LANGUAGE = ">>cmn_Hans<<"


def random_transformer(
    rng: np.random.Generator, dtype: type[np.floating] = np.float64, **options: Any
) -> Transformer:
    """A model whose biases and gains are not 0 and 1 either."""
    config = TransformerConfig.from_dict({**SIZES, **options})
    params = init_params(config, rng, np.float64)
    for param in params.values():
        param += 0.2 * rng.standard_normal(param.shape)
    return Transformer(config, {name: param.astype(dtype) for name, param in params.items()})


def spm_model(text: str, vocab_size: int) -> bytes:
    """A SentencePiece model trained on these lines."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(text.splitlines()),
        model_writer=model,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        bos_id=-1,
        minloglevel=2,
    )
    return model.getvalue()


def write_marian(folder: Path) -> Transformer:
    """config.json, weights, source.spm, target.spm and vocab.json, whose order is its own."""
    import sentencepiece

    folder.mkdir(parents=True, exist_ok=True)
    pieces = []
    for side, text, size in (("source", ENGLISH, 60), ("target", CHINESE, 70)):
        proto = spm_model(text, size)
        (folder / f"{side}.spm").write_bytes(proto)
        spm = sentencepiece.SentencePieceProcessor()
        spm.LoadFromSerializedProto(proto)
        pieces += [spm.IdToPiece(i) for i in range(spm.GetPieceSize())]
    marks = ("</s>", "<unk>", "<pad>")
    others = [*sorted({*pieces} - {*marks}, reverse=True), LANGUAGE]
    vocabulary = {piece: i for i, piece in enumerate(["</s>", "<unk>", *others, "<pad>"])}
    path = folder / "vocab.json"
    path.write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    names = {"source_lang": "en", "target_lang": "zh", "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    pad = vocabulary["<pad>"]
    model = random_transformer(
        np.random.default_rng(3),
        np.float32,
        model_type="marian",
        vocab_size=len(vocabulary),
        max_position_embeddings=64,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        bad_words_ids=[[pad]],
        num_beams=2,
        max_length=12,
        scale_embedding=True,
    )
    model.save_pretrained(folder)
    return model
