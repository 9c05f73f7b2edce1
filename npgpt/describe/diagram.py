"""The structure as a mermaid diagram, which GitHub and many editors draw (article 11.1).

The block is drawn once, inside the frame that says how often it comes; dotted lines are residuals.
"""

from __future__ import annotations

from npgpt.describe.structure import Structure, T

HEAD = '%%{init: {"flowchart": {"wrappingWidth": 360}}}%%'


def mermaid(structure: Structure) -> str:
    """The whole model from token ids to probabilities, with the shape of the stream."""
    config = structure.config
    d, H, F, V = config.n_embd, config.n_head, config.ffn_width, config.vocab_size
    x = f"[{T}, {d}]"
    head = "wte transposed" if config.tie_word_embeddings else "own table"
    return f"""{HEAD}
flowchart TB
    IDS["token ids　[{T}]"] --> WTE["token embedding wte<br/>{V} × {d}"]
    WTE -- "{x}" --> EMB(("+"))
    POS["positions　0 … T-1"] --> WPE["position embedding wpe<br/>{config.n_positions} × {d}"]
    WPE -- "{x}" --> EMB
    EMB --> X
    subgraph BLOCK["{config.n_layer} blocks"]
        X["x　{x}　residual stream"] --> LN1["LayerNorm ln_1"]
        LN1 --> ATT["causal self-attention<br/>{H} heads × {d // H} → joined → W_O"]
        ATT --> ADD1(("+"))
        X -. "residual" .-> ADD1
        ADD1 --> H["x'　{x}"]
        H --> LN2["LayerNorm ln_2"]
        LN2 --> FFN["FFN: {d} → {F} → {config.activation_function} → {d}"]
        FFN --> ADD2(("+"))
        H -. "residual" .-> ADD2
        ADD2 --> Y["x of the next block　{x}"]
    end
    Y --> LNF["LayerNorm ln_f"]
    LNF -- "{x}" --> HEAD["lm_head: {head}<br/>{d} × {V}"]
    HEAD --> LOGITS["logits　[{T}, {V}]"]
    LOGITS --> P["softmax → probabilities　[{T}, {V}]"]"""
