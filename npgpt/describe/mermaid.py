"""Every architecture as a mermaid diagram, which GitHub and many editors draw (article 2, 11.1).

From token ids to probabilities, with the shape of the stream. A block is drawn once, inside a frame
that says how many there are; dotted lines are residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from npgpt.describe.architectures import mlp_of, windows_of
from npgpt.models.bert.config import BERTConfig
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.transformer.config import TransformerConfig

HEAD = ['%%{init: {"flowchart": {"wrappingWidth": 360}}}%%', "flowchart TB"]


class Sublayer(NamedTuple):
    """One of the two or three things that a block adds to the stream."""

    node: str
    text: str
    norm: str  # before it, or behind the sum


def mermaid(config: GPT2Config | LlamaConfig | BERTConfig | TransformerConfig) -> str:
    """The diagram of a configuration."""
    match config:
        case GPT2Config():
            lines = _gpt2(config)
        case LlamaConfig():
            lines = _llama(config)
        case BERTConfig():
            lines = _bert(config)
        case TransformerConfig():
            lines = _transformer(config)
    return "\n".join([*HEAD, *(f"    {line}" for line in lines)])


def _gpt2(config: GPT2Config) -> list[str]:
    d, H, V = config.n_embd, config.n_head, config.vocab_size
    attention = f"causal self-attention{windows_of(config)}<br/>{_heads(H, d // H)}"
    sublayers = [
        Sublayer("ATT", attention, "LayerNorm ln_1"),
        Sublayer("FFN", _ffn(d, config.ffn_width, config.activation_function), "LayerNorm ln_2"),
    ]
    return [
        *_tokens("token embedding wte", V, d),
        *_positions("position embedding wpe", f"{config.n_positions} × {d}", d),
        "EMB --> X",
        *_frame(f"{config.n_layer} blocks", "BLOCK", _pre_norm(sublayers, d)),
        'Y --> LNF["LayerNorm ln_f"]',
        *_logits("LNF", "wte" if config.tie_word_embeddings else None, d, V),
    ]


def _llama(config: LlamaConfig) -> list[str]:
    d, F, V = config.hidden_size, config.intermediate_size, config.vocab_size
    H, H_kv = config.num_attention_heads, config.n_kv_head
    shared = f", on {H_kv} of keys and values" if H_kv != H else ""
    turned = "normed and rotated" if config.family.head_norms else "rotated"
    attention = f"causal self-attention, q and k {turned}{windows_of(config)}"
    attention += f"<br/>{_heads(H, config.d_h, shared)}"
    gated = f"SwiGLU: {d} → {config.hidden_act}(gate {F}) × up {F} → {d}"
    if any(config.sparse):
        gated = f"{mlp_of(config)}<br/>each expert a SwiGLU ({config.hidden_act})"
    sublayers = [
        Sublayer("ATT", attention, "RMSNorm input_layernorm"),
        Sublayer("FFN", gated, "RMSNorm post_attention_layernorm"),
    ]
    return [
        *_tokens("token embedding embed_tokens", V, d, to="X"),
        *_frame(f"{config.num_hidden_layers} blocks", "BLOCK", _pre_norm(sublayers, d)),
        'Y --> LNF["RMSNorm norm"]',
        *_logits("LNF", "embed_tokens" if config.tie_word_embeddings else None, d, V),
    ]


def _bert(config: BERTConfig) -> list[str]:
    d, H, V = config.hidden_size, config.num_attention_heads, config.vocab_size
    act, L, family = config.hidden_act, config.num_hidden_layers, config.family
    attn_norm, norm = (
        f"LayerNorm {name.removesuffix('.LayerNorm')}"
        for name in (family.parts.attn_norm, family.parts.norm)
    )
    attention = f"self-attention, left and right<br/>{_heads(H, d // H)}"
    sublayers = [
        Sublayer("ATT", attention, attn_norm),
        Sublayer("FFN", _ffn(d, config.intermediate_size, act), norm),
    ]
    types = f"token_type_embeddings<br/>{config.type_vocab_size} × {d}"
    to_types = [f'KIND["token types　[T]"] --> WTT["{types}"]', f'WTT -- "[T, {d}]" --> EMB']
    to_pooler = [f'Y -- "first token" --> POOL["pooler: {d} → {d} → tanh"]']
    rows = f"{config.max_position_embeddings} × {d}"
    return [
        *_tokens("word_embeddings", V, d),
        *_positions("position_embeddings", rows, d, first=config.first_position),
        *(to_types if family.has_types else []),
        'EMB --> LNE["LayerNorm embeddings"]',
        "LNE --> X",
        *_frame(f"{L} layers", "LAYER", _post_norm(sublayers, d)),
        *(to_pooler if family.pooler else []),
        f'Y --> MLM["MLM head: {d} → {d} → {config.head_act} → LayerNorm"]',
        *_logits("MLM", "word_embeddings" if config.tie_word_embeddings else None, d, V, "decoder"),
    ]


def _transformer(config: TransformerConfig) -> list[str]:
    d, tied = config.d_model, config.tie_word_embeddings
    table = config.head_table.removesuffix(".weight") if tied else None
    memory = f'E_Y -- "K and V of the source, [S, {d}]" --> D_CROSS'
    return [
        *_stack(config, "encoder"),
        *_stack(config, "decoder"),
        memory,
        *_logits("D_Y", table, d, config.target_vocab_size),
    ]


def _stack(config: TransformerConfig, side: str) -> list[str]:
    d, p = config.d_model, side[0].upper() + "_"
    length, table, V = {
        "encoder": ("S", config.source_table, config.vocab_size),
        "decoder": ("T", config.target_table, config.target_vocab_size),
    }[side]
    L, H, F = (getattr(config, f"{side}_{of}") for of in ("layers", "attention_heads", "ffn_dim"))
    heads, act = _heads(H, d // H), config.activation_function
    sees = "self-attention, left and right" if side == "encoder" else "causal self-attention"
    sublayers = [Sublayer("ATT", f"{sees}<br/>{heads}", "LayerNorm self_attn_layer_norm")]
    if side == "decoder":
        cross = f"cross-attention encoder_attn<br/>{heads}"
        sublayers.append(Sublayer("CROSS", cross, "LayerNorm encoder_attn_layer_norm"))
    sublayers.append(Sublayer("FFN", _ffn(d, F, act), "LayerNorm final_layer_norm"))
    learned = config.learned_positions
    places = "embed_positions" if learned else "sinusoids, no parameters"
    scaled = "" if config.embedding_scale == 1 else f", times √{d}"
    to_layers = [f'{p}EMB --> {p}LNE["LayerNorm layernorm_embedding"]', f"{p}LNE --> {p}X"]
    return [
        *_tokens(table.removesuffix(".weight") + scaled, V, d, p=p, length=length),
        *_positions(f"{side} {places}", f"{config.max_position_embeddings} × {d}", d, p, length),
        *(to_layers if learned else [f"{p}EMB --> {p}X"]),
        *_frame(f"{L} {side} layers", side.upper(), _post_norm(sublayers, d, p, length)),
    ]


# The pieces. `p` begins the names of all nodes of a stack, `length` is the letter of its tokens.


def _tokens(
    table: str, V: int, d: int, *, to: str = "EMB", p: str = "", length: str = "T"
) -> list[str]:
    end = f'{p}EMB(("+"))' if to == "EMB" else to
    ids = {"": "token", "E_": "source", "D_": "target"}[p]
    return [
        f'{p}IDS["{ids} ids　[{length}]"] --> {p}WTE["{table}<br/>{V} × {d}"]',
        f'{p}WTE -- "[{length}, {d}]" --> {end}',
    ]


def _positions(
    table: str, size: str, d: int, p: str = "", length: str = "T", *, first: int = 0
) -> list[str]:
    last = f"{length}{first - 1:+}".removesuffix("+0")
    return [
        f'{p}POS["positions　{first} … {last}"] --> {p}WPE["{table}<br/>{size}"]',
        f'{p}WPE -- "[{length}, {d}]" --> {p}EMB',
    ]


def _frame(title: str, node: str, lines: list[str]) -> list[str]:
    return [f'subgraph {node}["{title}"]', *(f"    {line}" for line in lines), "end"]


def _streams(number: int, x: str, what: str, p: str) -> list[tuple[str, str]]:
    """The stream before, between and behind the sublayers: its nodes, bare and with their text."""
    texts = [f"x　{x}　residual stream", *(f"x{k * chr(39)}　{x}" for k in range(1, number))]
    texts.append(f"x of the next {what}　{x}")
    names = [p + name for name in ("X", "H", "G")[:number]] + [f"{p}Y"]
    return [(name, f'{name}["{text}"]') for name, text in zip(names, texts, strict=True)]


def _pre_norm(sublayers: Sequence[Sublayer], d: int) -> list[str]:
    """x + sublayer(norm(x)), one after the other."""
    lines, streams = [], _streams(len(sublayers), f"[T, {d}]", "block", "")
    for n, (node, text, norm) in enumerate(sublayers, 1):
        (x, x_text), (_, y_text) = streams[n - 1 : n + 1]
        lines += [
            f'{x_text if n == 1 else x} --> LN{n}["{norm}"]',
            f'LN{n} --> {node}["{text}"]',
            f'{node} --> ADD{n}(("+"))',
            f'{x} -. "residual" .-> ADD{n}',
            f"ADD{n} --> {y_text}",
        ]
    return lines


def _post_norm(sublayers: Sequence[Sublayer], d: int, p: str = "", length: str = "T") -> list[str]:
    """norm(x + sublayer(x)), one after the other."""
    lines, streams = [], _streams(len(sublayers), f"[{length}, {d}]", "layer", p)
    for n, (node, text, norm) in enumerate(sublayers, 1):
        (x, x_text), (_, y_text) = streams[n - 1 : n + 1]
        lines += [
            f'{x_text if n == 1 else x} --> {p}{node}["{text}"]',
            f'{p}{node} --> {p}ADD{n}(("+"))',
            f'{x} -. "residual" .-> {p}ADD{n}',
            f'{p}ADD{n} --> {p}LN{n}["{norm}"]',
            f"{p}LN{n} --> {y_text}",
        ]
    return lines


def _logits(x: str, table: str | None, d: int, V: int, head: str = "lm_head") -> list[str]:
    of = f"{table} transposed" if table else "own table"
    return [
        f'{x} -- "[T, {d}]" --> HEAD["{head}: {of}<br/>{d} × {V}"]',
        f'HEAD --> LOGITS["logits　[T, {V}]"]',
        f'LOGITS --> P["softmax → probabilities　[T, {V}]"]',
    ]


def _heads(H: int, d_h: int, shared: str = "") -> str:
    return f"{H} heads × {d_h}{shared} → joined → W_O"


def _ffn(d: int, F: int, activation: str) -> str:
    return f"FFN: {d} → {F} → {activation} → {d}"
