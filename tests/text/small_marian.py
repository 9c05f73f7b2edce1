"""A tiny Marian model in a folder, with SentencePiece vocabularies trained on a few lines."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np

from npgpt.models.transformer.model import Transformer
from tests.models.tiny_transformer import random_transformer

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
