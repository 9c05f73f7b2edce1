"""Engines that have the whole model in them, and get the weights in a file of their own kind."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import npgpt
from benchmarking import Step, Work, threads
from npgpt.models.gguf import LLAMA_NAMES


def in_ctranslate2(work: Work, folder: str) -> Step:
    """Its tokens are strings: here their ids as digits."""
    import ctranslate2
    from ctranslate2.converters import TransformersConverter
    from transformers import AutoConfig

    V = AutoConfig.from_pretrained(folder).vocab_size

    class WithoutTokenizer(TransformersConverter):  # the model is random and has none
        def load_tokenizer(self, *_: Any, **__: Any) -> Any:
            special = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "0")
            return SimpleNamespace(get_vocab=lambda: {str(i): i for i in range(V)}, **special)

    path = Path(folder) / "ctranslate2"
    if not path.is_dir():
        WithoutTokenizer(folder).convert(str(path), quantization="float32")
    generator = ctranslate2.Generator(str(path), compute_type="float32", intra_threads=threads())
    prompts = [[str(i) for i in row] for row in work.ids(V)]

    def step(new: int, checking: bool) -> Any:
        found = generator.generate_batch(
            prompts, max_length=new, min_length=new, end_token=[], include_prompt_in_result=False,
            return_logits_vocab=checking,
        )  # fmt: skip
        return [np.array(row.logits[0])[-1] for row in found] if checking else None

    return step


def in_llama_cpp(work: Work, folder: str) -> Step:
    import xllamacpp

    model, path = npgpt.from_pretrained(folder), Path(folder) / "model.gguf"
    if not path.is_file():
        write_gguf(model, path)
    V = model.config.vocab_size
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = str(path), work.T + work.new + 1, 1
    # With its fused attention logits differ by 6e-4 of the largest, without by 6e-7.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = threads()
    params.cache_ram_mib, params.verbosity = 0, -1
    server = xllamacpp.Server(params)
    asked = {"prompt": work.ids(V)[0].tolist(), "temperature": 0.0, "cache_prompt": False}

    def step(new: int, checking: bool) -> Any:
        more = {"n_predict": new, "ignore_eos": True, "logprobs": V if checking else 0}
        found = server.handle_completions({**asked, **more})
        if not checking:
            return None
        probs = found["choices"][0]["logprobs"]["content"][-1]["top_logprobs"]
        logits = np.full((1, V), np.nan)
        logits[0, [each["id"] for each in probs]] = [each["logprob"] for each in probs]
        return logits

    return step


def write_gguf(model: Any, path: Path) -> None:
    """A Llama in float32, with as many tokens as it has ids."""
    import gguf

    config, names = model.config, {ours: theirs for theirs, ours in LLAMA_NAMES.items()}
    H, H_kv = config.num_attention_heads, config.n_kv_head
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(H)
    writer.add_head_count_kv(H_kv)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"<{i}>" for i in range(config.vocab_size)])
    writer.add_token_scores([0.0] * config.vocab_size)
    writer.add_token_types([gguf.TokenType.NORMAL] * config.vocab_size)
    for name, array in model.params.items():
        block, part = re.fullmatch(r"(layers\.\d+\.)?(.*)\.weight", name).groups("")
        array = array.T if part.endswith("_proj") else array
        if part.endswith(("q_proj", "k_proj")):  # pairs to turn are neighbours there
            paired = array.reshape(H if "q_proj" in part else H_kv, 2, -1, array.shape[1])
            array = paired.swapaxes(1, 2).reshape(array.shape)
        name = f"{block.replace('layers', 'blk')}{names[part]}.weight"
        writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
