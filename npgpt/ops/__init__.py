"""The operations of the Transformer: one file each, forward and right under it backward.

The contract of an operation:

    y, saved = softmax_forward(x, *, axis)      data, then parameters, then keyword-only settings
    dx = softmax_backward(dy, saved)            gradients in the order of forward's inputs

* Pure: no state, no argument is changed, no switch between different mathematics.
* `saved` holds what backward reads and nothing else.
* Leading axes are free: [T, d] and [B, T, d] go through the same function. Only the gradients of
  parameters sum over them, and have the parameter's shape.
* The dtype of the parameters is the dtype of everything: float32 in, float32 out, values and
  gradients; float64 for gradient checks. A setting is a number whatever its type: an np.float64
  changes no dtype.
* Weights are [in, out]; masks are boolean, True = may attend.
* NumPy only.

The axes:

    B  batch            T  query positions      S  key positions        V  vocabulary
    d  model width      H  heads                d_h  head width
    F  feed-forward width                       L  layers

In the article's order: `lookup` (chapter 5), `position` (6), `linear`, `heads`, `scores`, `mask`,
`softmax`, `weighted_sum` (7), `activation` (8), `layer_norm` (9), `lm_head` (10), and for training
`dropout`, `cross_entropy` and `label_smoothing`. `sinusoids` are positions without parameters (2).
`flash_attention` and `lm_head_loss` are several of these in one, for speed; `few_rows` has the
products of `linear`, `project` and `lm_head` for decoding. Llama's `rope` (6),
`project` and `shared_heads` (7) and `rms_norm` (9) stand for `position`, `linear`, equal numbers of
heads, and `layer_norm`. A mixture of experts has a `router`, and `load_balance` in training (8).
"""
