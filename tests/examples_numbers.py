"""What each example must print: the article's numbers, with the article's digits."""

from __future__ import annotations

NUMBERS: dict[str, tuple[str, ...]] = {
    "ch01_overview": (
        *("50257", "768", "12", "64", "1024", "3072"),
        *("218 M", "81 %", "13 %", "1.5 %"),
        "[T, V] = [43, 256]",
    ),
    "ch01_parts": (
        "1  token embedding            · · · ■ · · · ·",
        "3  attention                  · · · ■ ■ ■ ■ ■",
        "4  FFN                        · · · ■ · · · ·",
        "6  lm_head                    · · · ■ · · · ·",
    ),
    "ch02_encoder_decoder": (
        *("N, layers on each side                                                             6",),
        *("512", "2048", "44,138,496"),
        "Q [T, d] = [5, 512], K and V [S, d] = [6, 512]",
        "cross-attention: GPT-2 has no parameter for it",
        "row t of one pass over the target",
    ),
    "ch03_three_routes": (
        "encoder-only: the masked token              · ■ · · ·",
        "decoder-only: the next token, T losses      ■ ■ ■ ■ ■",
        "encoder-decoder (2017, T5, BART)",
    ),
    "ch05_token_embedding": (
        "'The cat sat on the' -> [464, 3797, 3332, 319, 262]",
        *("50257", "768", "38,597,376"),
        "[262, 319, 464, 3332, 3797]",
        "row 262 gets the sum",
    ),
    "ch06_position": (
        "t0    0.92  0.43  0.57  0.08",
        "t1    0.43  0.92  0.08  0.57",
        "t2    0.73  0.73  0.27  0.27",
        "猫@0 (3, 0)   追@1 (0, 3)   狗@2 (1, 1)",
        "狗@0 (3, 1)   追@1 (0, 3)   猫@2 (1, 0)",
        "猫@1 (2, 1)   追@2 (-1, 2)   狗@3 (2, 0)",
        *("0.268", "3.732", "1024", "64"),
        "without positions                                                                  4",
        "R(a)ᵀ R(b) = R(b - a)",
        "the table holds 0..1023",
    ),
    "ch07_attention_six_steps": (
        "t0    2  0  1  0    1  0  2  0    1  0  1  0",
        "t1    0  2  0  1    0  1  0  2    0  1  0  1",
        "t2    1  1  0  0    1  1  1  1    1  1  0  0",
        "t0    4  0  3       2     0     1.50     2     -∞     -∞       1     0     0",
        "t1    0  4  3       0     2     1.50     0      2     -∞       0.12  0.88  0",
        "t2    1  1  2       0.50  0.50  1        0.50   0.50   1       0.27  0.27  0.45",
        "t1    0.12  0.88  0.12  0.88",
        "t2    0.73  0.73  0.27  0.27",
        *("dP = dout Vᵀ", "dV = Pᵀ dout", "dS = dscaled / √d", "dQ = dS K", "dK = dSᵀ Q"),
        *("dW_Q = xᵀ dQ", "dW_K = xᵀ dK", "dW_V = xᵀ dV", "dx = dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ"),
        "t2    0.274  0.274  0.452    1  0  1    0.726      0.075  -0.199   0.124",
    ),
    "ch07_flash_attention": (
        "the same output as with the whole table",
        *("dq: largest", "dk: largest", "dv: largest"),
    ),
    "ch07_heads": (
        *("590,592", "2,362,368", "0.59 M", "1.2 MFLOPs"),
        *("12,582,912", "25,165,824 bytes", "24 MiB", "301,989,888 bytes", "288 MiB"),
        "12 projections [768, 64] of the whole x",
        "W_V W_O folds into one matrix",
        "c_attn [768, 2304] = [768, 2304]",
    ),
    "ch07_heads_of_a_model": (
        "of 144 heads put most of their weight on the first token",
        "144 heads change it by less than 1 %",
        "head 1 a copy of head 0: their gradients are equal",
    ),
    "ch07_heatmap": (
        "12 blocks x 12 heads = 144 weight tables",
        *("all are lower triangular", "each row sums to 1"),
        *(": previous token, ", ": it looks at cat, "),
    ),
    "ch07_mask": (
        "changed: · · ■",
        "42 predictions from one pass",
        "a different last token changes no logit before it",
        "6 of 6 right, loss 0.00",
    ),
    "ch07_scaling": (
        *("1.99", "8.01", "11.33", "32.01", "1.00"),
        *("0.99995", "0.00005", "0.88", "0.71", "0.29", "0.21"),
    ),
    "ch08_ffn": (
        "100 layers = x times one matrix",
        *("4,722,432", "2,362,368", "66.6 %"),
        "[4, 768] -> [4, 3072] -> GELU -> [4, 768]",
    ),
    "ch08_neurons": ("the output is the sum of 192 answers", "pushes"),
    "ch09_pre_and_post_norm": (
        "pre-norm: the direct path passes everything",
        "pre-norm needs ln_f",
        "32 blocks",
    ),
    "ch09_residual_layernorm": (
        "24 of 24 corrections are smaller",
        "2  4  4  6    -1.41   0      0      1.41",
        "mean                                                                               4",
        "variance                                                                           2",
        "4.24",
    ),
    "ch10_lm_head": (
        *("50257", "38,597,376"),
        "gradient of the shared wte = that of the lookup + that of the lm_head",
    ),
    "ch11_stacking": (
        *("38,597,376", "786,432", "2,362,368", "4,722,432", "3,072", "7,087,872", "85,054,464"),
        *("1,536", "124,439,808", "31.6 %", "66.6 %", "123,653,376"),
        "lm_head, shared with wte                                                           0",
        *("flowchart TB", "x = x + attn(ln_1(x)); x = x + mlp(ln_2(x)) is the block"),
    ),
    "ch13_self_test": tuple(f"13, question {n}" for n in range(1, 7)),
    "next_training_and_inference": (
        *("28", "1,952", "2.77", "160"),
        "28 gradients, each in the shape of its parameter",
        *("one AdamW step: 2.785 -> ", "greedy, with cache and without: "),
        "layers · 2 · T · d = 2 · 2 · 5 · 8 = 160",
        "1.4e-2 on a scale of 155, relative 8.9e-5",
    ),
}
