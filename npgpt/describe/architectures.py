"""The descriptions of Llama, BERT and the encoder-decoder: parameters, and memory.

Every count of parameters comes from `param_shapes`. Boxes and FLOPs are GPT-2's alone.
"""

from __future__ import annotations

import math
from typing import Any

from npgpt.describe.tables import (
    Line,
    Section,
    Setting,
    Wanted,
    by_path,
    memory_section,
    parameter_lines,
    parameter_section,
    parts,
    several,
    total_of,
)
from npgpt.models.bert.config import BERTConfig
from npgpt.models.bert.config import param_shapes as bert_shapes
from npgpt.models.bert.families import Family, Parts
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt_neo.config import GPTNeoConfig
from npgpt.models.llama.config import LlamaConfig, expert_names
from npgpt.models.llama.config import param_shapes as llama_shapes
from npgpt.models.transformer.config import TransformerConfig
from npgpt.models.transformer.config import param_shapes as transformer_shapes

QWEN: dict[str, Any] = {
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
    "bos_token_id": 151643,
    "eos_token_id": 151643,
}
PRESETS: dict[str, GPTNeoConfig | LlamaConfig | BERTConfig | TransformerConfig] = {
    "gpt-neo-125m": GPTNeoConfig(
        n_embd=768, n_layer=12, n_head=12, attention_types=[[["global", "local"], 6]]
    ),
    "llama-3-8b": LlamaConfig(
        vocab_size=128256,
        intermediate_size=14336,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
        bos_token_id=128000,
        eos_token_id=128001,
    ),
    "mistral-7b": LlamaConfig(
        model_type="mistral",
        intermediate_size=14336,
        num_key_value_heads=8,
        max_position_embeddings=32768,
        sliding_window=4096,
        rms_norm_eps=1e-5,
    ),
    "qwen2.5-0.5b": LlamaConfig(
        model_type="qwen2",
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        **QWEN,
    ),
    "qwen3-0.6b": LlamaConfig(
        model_type="qwen3",
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        **{**QWEN, "max_position_embeddings": 40960},
    ),
    "mixtral-8x7b": LlamaConfig(
        model_type="mixtral",
        intermediate_size=14336,
        num_key_value_heads=8,
        max_position_embeddings=32768,
        rms_norm_eps=1e-5,
        rope_theta=1e6,
        num_local_experts=8,
        num_experts_per_tok=2,
    ),
    "qwen3-30b-a3b": LlamaConfig(
        model_type="qwen3_moe",
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=48,
        num_key_value_heads=4,
        head_dim=128,
        num_local_experts=128,
        num_experts_per_tok=8,
        norm_topk_prob=True,
        moe_intermediate_size=768,
        **{**QWEN, "max_position_embeddings": 40960, "tie_word_embeddings": False},
    ),
    "bert-base-uncased": BERTConfig(),
    "roberta-base": BERTConfig(
        model_type="roberta",
        vocab_size=50265,
        max_position_embeddings=514,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=1,
    ),
    "distilbert-base-uncased": BERTConfig(model_type="distilbert", num_hidden_layers=6),
    "transformer-base": TransformerConfig(),
    "bart-base": TransformerConfig.from_dict(
        {
            "model_type": "bart",
            "d_model": 768,
            **{f"{side}_layers": 6 for side in ("encoder", "decoder")},
            **{f"{side}_attention_heads": 12 for side in ("encoder", "decoder")},
            **{f"{side}_ffn_dim": 3072 for side in ("encoder", "decoder")},
        }
    ),
}

HEAD_NORMS, WORK = "norms of q and k", "at work for a token"  # of some relatives of Llama

LAYERS = ("encoder.layers.0.", "decoder.layers.0.")  # of an encoder-decoder: any layer
LOGITS_BIAS = "final_logits_bias"  # stored, but never trained: no parameter


def llama(config: LlamaConfig, setting: Setting) -> list[Section]:
    """The description of a Llama; its KV cache also as if every head had keys of its own."""
    H, H_kv = config.num_attention_heads, config.n_kv_head
    head = "is embed_tokens" if config.tie_word_embeddings else "has its own table"
    title = (
        f"{setting.model}: {config.num_hidden_layers} blocks, d {config.hidden_size}, {H} heads of "
        f"{config.d_h} on {H_kv} of keys and values,\n{mlp_of(config)} "
        f"({config.hidden_act}), rotary positions ({config.rotary.rope_type}, theta "
        f"{config.rope_theta:g}){windows_of(config)},\nvocabulary {config.vocab_size}, context "
        f"{config.max_position_embeddings}; lm_head {head}"
    )
    lines = llama_lines(config)
    numbers = config.num_hidden_layers * 2 * setting.tokens * config.d_h * setting.batch
    a_head = numbers * setting.bytes_each
    unshared = "KV cache, every head its own"
    memory = {
        "parameters": total_of(lines) * setting.bytes_each,
        "KV cache": a_head * H_kv,
        unshared: a_head * H,
    }
    labels = {
        unshared: f"… if all {H} heads had their own keys",
        "experts": several(config.num_local_experts, "expert"),
    }
    return [
        Section(title, setting.about(config)),
        parameter_section(lines, labels),
        _below(f"T = {setting.tokens} tokens", setting),
        memory_section(memory, labels),
    ]


def llama_lines(config: LlamaConfig) -> list[Line]:
    """The parameter table; with experts also how many parameters are at work for a token."""
    sparse, shapes = config.sparse, llama_shapes(config)
    first = {has: sparse.index(has) for has in (True, False) if has in sparse}
    block, *others = (f"layers.{n}." for n in first.values())
    attn, names = f"{block}self_attn.", {"W_Q": "q_proj.", "W_K": "k_proj.", "W_V": "v_proj."}
    norms = (2, HEAD_NORMS, tuple(f"{attn}{part}_norm." for part in "qk"))
    wanted: list[Wanted] = [
        (0, "embed_tokens", "embed_tokens."),
        (0, "a block", block),
        (1, "attention", attn),
        *parts(2, attn, **names, W_O="o_proj."),
        *([norms] if config.family.head_norms else []),
        *(_expert_lines(config, first[True]) if True in first else _mlp_lines(block)),
    ]
    for other in others:
        wanted += [(0, "a block without experts", other), *_mlp_lines(other)]
    ends = {"all blocks": "layers.", "norm": "norm.", "lm_head": "lm_head.", "total": ""}
    lines = parameter_lines(shapes, [*wanted, *parts(0, "", **ends)], (block, *others))
    if True in first:
        E, total = config.num_local_experts, total_of(lines)
        of_experts = sum(math.prod(shape) for name, shape in shapes.items() if ".experts." in name)
        work = total - of_experts // E * (E - config.num_experts_per_tok)
        lines.append(Line(0, WORK, work, work / total, None))
    return lines


def _mlp_lines(block: str) -> list[Wanted]:
    mlp = f"{block}mlp."
    return [(1, "MLP", mlp), *parts(2, mlp, gate="gate_proj.", up="up_proj.", down="down_proj.")]


def _expert_lines(config: LlamaConfig, n: int) -> list[Wanted]:
    router, names = expert_names(config, n)
    kinds = dict(zip(("gate", "up", "down"), (of_all[0] for of_all in names), strict=True))
    expert = kinds["gate"].rpartition(".0.")[0]
    whole = [(1, "router", router), (1, "experts", f"{expert}."), (2, "an expert", f"{expert}.0.")]
    return [*whole, *parts(3, "", **kinds)]


def mlp_of(config: LlamaConfig) -> str:
    """ "MLP …", or how many experts there are, and how many of them a token goes to."""
    dense = f"MLP {config.intermediate_size}"
    blocks = sum(config.sparse)
    if not blocks:
        return dense
    E, k = config.num_local_experts, config.num_experts_per_tok
    mixture = f"{E} experts of {config.expert_width}, {k} a token"
    few = f" in {several(blocks, 'block')}, else {dense}" if blocks < len(config.sparse) else ""
    return mixture + few


def windows_of(config: LlamaConfig | GPT2Config) -> str:
    """ ", no further back than …", where some blocks see only so many keys."""
    windows = [window for window in config.windows if window is not None]
    if not windows:
        return ""
    few = "" if len(windows) == len(config.windows) else f" in {several(len(windows), 'block')}"
    return f", no further back than {windows[0]} tokens{few}"


def bert(config: BERTConfig, setting: Setting) -> list[Section]:
    """The description of a BERT, without KV cache: it reads all tokens at once and writes none."""
    d, H, L = config.hidden_size, config.num_attention_heads, config.num_hidden_layers
    head = "is word_embeddings" if config.tie_word_embeddings else "has its own table"
    family = config.family
    types = several(config.type_vocab_size, "token type") if family.has_types else "no token types"
    title = (
        f"{setting.model}: {several(L, 'layer')}, d {d}, "
        f"{several(H, 'head')} of {d // H}, FFN {config.intermediate_size} ({config.hidden_act}),\n"
        f"post-norm, every token sees all others, learned positions, {types},\n"
        f"vocabulary {config.vocab_size}, context {config.context}; "
        f"decoder of the MLM head {head}"
    )
    bare = ("embeddings.", f"{family.layers}.", "pooler.")
    layer = (f"{family.layers}.0.",)
    lines = parameter_lines(bert_shapes(config), _bert_lines(family, bare), layer, bare)
    tokens, each = setting.tokens, setting.batch * setting.bytes_each
    memory = {
        "parameters": total_of(lines) * setting.bytes_each,
        "hidden states": tokens * d * each,
        "weight tables of a layer": H * tokens**2 * each,
        "weight tables of all layers": L * H * tokens**2 * each,
        "logits of the MLM head": tokens * config.vocab_size * each,
    }
    return [
        Section(title, setting.about(config)),
        parameter_section(lines, {}, "layer"),
        _below(f"T = {tokens} tokens", setting),
        memory_section(memory, {}),
    ]


def _bert_lines(family: Family, bare: tuple[str, ...]) -> list[Wanted]:
    """A config.json does not say which of pooler and MLM head a checkpoint has: both have a line,
    and the total is that of the bare model, with its pooler, as its size is usually given."""
    part = Parts(*(f"{name}." for name in family.layer(0)))  # of any layer
    attention = (part.query, part.key, part.value, part.out)
    types = [(1, "token_type_embeddings", "embeddings.token_type_embeddings.")]
    with_head = (*bare[:2], family.head)
    with_pooler = [(0, "with MLM head, without pooler", with_head), (0, "with both", "")]
    return [
        (0, "embeddings", "embeddings."),
        (1, "word_embeddings", "embeddings.word_embeddings."),
        (1, "position_embeddings", "embeddings.position_embeddings."),
        *(types if family.has_types else []),
        (1, "LayerNorm", "embeddings.LayerNorm."),
        (0, "a layer", f"{family.layers}.0."),
        (1, "attention", attention),
        *parts(2, "", **dict(zip(("W_Q", "W_K", "W_V", "W_O"), attention, strict=True))),
        (1, "FFN", (part.wide, part.narrow)),
        *parts(2, "", W_1=part.wide, W_2=part.narrow),
        (1, "two LayerNorms", (part.attn_norm, part.norm)),
        (0, "all layers", f"{family.layers}."),
        *([(0, "pooler", "pooler.")] if family.pooler else []),
        (0, "total", bare),
        (0, "MLM head", family.head),
        (1, "transform", (f"{family.transform}.", f"{family.transform_norm}.")),
        (1, "decoder", f"{family.decoder}.weight"),
        (1, "bias", family.bias),
        *(with_pooler if family.pooler else [(0, "with MLM head", "")]),
    ]


def transformer(config: TransformerConfig, setting: Setting) -> list[Section]:
    """The description of an encoder-decoder: S tokens of source for the encoder, T of target.

    The keys and values of the source are computed once and stay as they are; those of the target
    grow with every token that is written. Parts are named with what they are part of.
    """
    S, T, each = setting.source, setting.tokens, setting.batch * setting.bytes_each
    lines = _transformer_lines(config)
    a_token = config.decoder_layers * 2 * config.d_model * each
    read, write = config.encoder_attention_heads, config.decoder_attention_heads
    memory = {
        "parameters": total_of(lines) * setting.bytes_each,
        "what the encoder gives": S * config.d_model * each,
        "KV cache of the source, for cross-attention": a_token * S,
        "KV cache of the target, for self-attention": a_token * T,
        "weight tables of an encoder layer": read * S**2 * each,
        "weight tables of a decoder layer": write * T * (T + S) * each,
        "logits": T * config.target_vocab_size * each,
    }
    return [
        Section(_transformer_title(config, setting.model), setting.about(config, source=S)),
        parameter_section(lines, {LOGITS_BIAS: f"{LOGITS_BIAS}, not trained"}, "layer"),
        _below(f"S = {S} tokens of source, T = {T} of target", setting),
        memory_section(memory, {}),
    ]


def _below(tokens: str, setting: Setting) -> Section:
    texts = several(setting.batch, "text")
    return Section(f"Below: {tokens}, {texts}, {setting.bytes_each} bytes a number.", {})


def _transformer_title(config: TransformerConfig, model: str) -> str:
    def stack(side: str) -> str:
        layers, heads, width = (
            getattr(config, f"{side}_{of}") for of in ("layers", "attention_heads", "ffn_dim")
        )
        stacked, split = several(layers, f"{side} layer"), several(heads, "head")
        return f"{stacked}, {split} of {config.d_model // heads}, FFN {width}"

    V, target_V = config.vocab_size, config.target_vocab_size
    vocabulary = f"{V}" if target_V == V else f"{V} and {target_V}"
    tied = config.tie_word_embeddings
    head = f"is {config.head_table.removesuffix('.weight')}" if tied else "has its own table"
    return (
        f"{model}: d {config.d_model}, {config.activation_function}, post-norm,\n"
        f"{stack('encoder')}; a token sees the whole source,\n"
        f"{stack('decoder')}; a token sees the target up to itself, and the source,\n"
        f"{'learned' if config.learned_positions else 'sinusoidal'} positions, vocabulary "
        f"{vocabulary}, context {config.max_position_embeddings}; "
        f"lm_head {head}"
    )


def _transformer_lines(config: TransformerConfig) -> list[Line]:
    shapes = transformer_shapes(config)
    bias = shapes.pop(LOGITS_BIAS, None)
    lines = parameter_lines(shapes, _transformer_wanted(config), LAYERS)
    if bias is not None:
        total, size = total_of(lines), config.target_vocab_size
        lines.append(Line(0, LOGITS_BIAS, size, size / total, None))
    return by_path(lines)


def _transformer_wanted(config: TransformerConfig) -> list[Wanted]:
    tables = dict.fromkeys((config.source_table, config.target_table))
    lines: list[Wanted] = [(0, name.removesuffix(".weight"), name) for name in tables]
    for side, layer in zip(("encoder", "decoder"), LAYERS, strict=True):
        if config.learned_positions:
            for part in ("embed_positions", "layernorm_embedding"):
                lines.append((0, f"{side}.{part}", f"{side}.{part}."))
        if side == "encoder":
            lines.append((0, "an encoder layer", layer))
            lines += _attention("self-attention", f"{layer}self_attn.")
        else:
            lines.append((0, "a decoder layer", layer))
            lines += _attention("causal self-attention", f"{layer}self_attn.")
            lines += _attention("cross-attention", f"{layer}encoder_attn.", " of the source")
        norms = ("self_attn_layer_norm.", "encoder_attn_layer_norm.", "final_layer_norm.")
        number = "two" if side == "encoder" else "three"
        lines += [
            (1, "FFN", (f"{layer}fc1.", f"{layer}fc2.")),
            *parts(2, layer, W_1="fc1.", W_2="fc2."),
            (1, f"{number} LayerNorms", tuple(layer + norm for norm in norms)),
            (0, f"all {side} layers", f"{side}.layers."),
        ]
    return [*lines, (0, "lm_head", "lm_head."), (0, "total", "")]


def _attention(name: str, begin: str, of: str = "") -> list[Wanted]:
    names = ("W_Q", f"W_K{of}", f"W_V{of}", "W_O")
    ends = ("q_proj.", "k_proj.", "v_proj.", "out_proj.")
    return [(1, name, begin), *parts(2, begin, **dict(zip(names, ends, strict=True)))]
