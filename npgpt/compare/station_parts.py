"""What makes each station: where to look for the fault when it is the first that is wrong.

One table for each architecture; N stands for any layer. Leaves out finding that station.
"""

from __future__ import annotations

import re

WEIGHTS = "the cut into heads, the scale 1/√d_h, {mask}softmax"
SUM = "the weighted sum, joining the heads"

GPT2 = {
    "embed": "wte[id] + wpe[position]",
    "h.N.attn.probs": "ln_1, the Q and K thirds of c_attn, "
    + WEIGHTS.format(mask="the causal mask, "),
    "h.N.attn": f"the V third of c_attn, {SUM}, attn.c_proj",
    "h.N.mlp": "ln_2, mlp.c_fc, the activation function, mlp.c_proj",
    "h.N": "the residual additions: x + attn, then x + mlp",
    "ln_f": "ln_f.weight, ln_f.bias, layer_norm_epsilon",
    "logits": "lm_head, which is the token table transposed where the two are tied",
    "loss": "log-softmax, and targets shifted by one: ids[t + 1] for position t",
}
LLAMA = {
    "embed": "embed_tokens[id]; no position is added",
    "layers.N.self_attn.probs": "input_layernorm, q_proj, k_proj, the cut into heads, which of "
    "them share keys, rotary angles and which coordinates are a pair, the scale 1/√d_h, the causal "
    "mask, softmax",
    "layers.N.self_attn": f"v_proj, {SUM}, o_proj",
    "layers.N.mlp": "post_attention_layernorm, gate_proj with the activation, times up_proj, "
    "down_proj",
    "layers.N": "the residual additions: x + self_attn, then x + mlp",
    "norm": "norm.weight, rms_norm_eps; no mean is subtracted",
    "logits": GPT2["logits"],
    "loss": GPT2["loss"],
}
_LAYER = "encoder.layer.N."
BERT = {
    "embed": "LayerNorm(word_embeddings[id] + position_embeddings[t] + token_type_embeddings[0]), "
    "layer_norm_eps",
    _LAYER + "attention.self.probs": "query, key, "
    + WEIGHTS.format(mask="")
    + "; no causal mask: every token sees all",
    _LAYER + "attention.output.dense": f"value, {SUM}, attention.output.dense",
    _LAYER + "attention.output.LayerNorm": "LayerNorm(x + attention.output.dense), layer_norm_eps",
    _LAYER + "output.dense": "intermediate.dense, the activation function (gelu is the exact one), "
    "output.dense",
    "encoder.layer.N": "LayerNorm(x + output.dense), layer_norm_eps",
    "pooler": "tanh(pooler.dense) of the first token alone",
    "logits": "cls.predictions: transform.dense, the activation function, transform.LayerNorm, the "
    "word table transposed where the two are tied, bias",
    "loss": "log-softmax, and the target of position t: ids[t] itself, not shifted",
}
SEQ2SEQ = {
    "loss": "log-softmax, and the target of position t: target_ids[t]; the mean over all of them",
    "logits": "the table shared.weight transposed where the head is tied, else lm_head; plus "
    "final_logits_bias",
    "encoder.embed": "embed_tokens[id], times √d_model where scale_embedding is set, + positions: "
    "learned ones from row 2 on and layernorm_embedding in a bart, sines and then cosines in a "
    "marian, alternating in the paper",
    "encoder.layers.N.self_attn.probs": "q_proj, k_proj, "
    + WEIGHTS.format(mask="")
    + "; no causal mask: every token of the source sees all",
    "decoder.layers.N.self_attn.probs": "q_proj, k_proj, "
    + WEIGHTS.format(mask="the causal mask, "),
    "decoder.layers.N.encoder_attn.probs": "q_proj of the target's x, k_proj of what the last "
    "encoder layer gave, " + WEIGHTS.format(mask="") + "; no causal mask",
    "decoder.layers.N.encoder_attn": f"v_proj of what the last encoder layer gave, {SUM}, out_proj",
    "decoder.layers.N.encoder_attn_layer_norm": "LayerNorm(x + encoder_attn), eps 1e-5",
}
for _side in ("encoder", "decoder"):
    SEQ2SEQ |= {
        f"{_side}.layers.N.self_attn": f"v_proj, {SUM}, out_proj",
        f"{_side}.layers.N.self_attn_layer_norm": "LayerNorm(x + self_attn), eps 1e-5",
        f"{_side}.layers.N.fc2": "fc1, the activation function, fc2",
        f"{_side}.layers.N": "final_layer_norm: LayerNorm(x + fc2), eps 1e-5",
    }
SEQ2SEQ["decoder.embed"] = (
    "the target shifted right, decoder_start_token_id in front; then as " + SEQ2SEQ["encoder.embed"]
)
TABLES = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "bert": BERT,
    **dict.fromkeys(("bart", "marian", "transformer"), SEQ2SEQ),
}


def what_makes(kind: str, station: str) -> str:
    """What to look at when `station` is the first that is wrong in a model of that `model_type`."""
    return TABLES[kind][re.sub(r"\.\d+", ".N", station)]
