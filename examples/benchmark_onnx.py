"""ONNX Runtime in `benchmark.py`: GPT-2 as a graph of its own operations, as its optimizer has it.

They add the biases and the residual, too: SkipLayerNormalization, FastGelu, GroupQueryAttention.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmark_works import Step, Work, greedy, threads

OURS = ("SkipLayerNormalization", "FastGelu", "GroupQueryAttention")


def in_onnx(work: Work, folder: str) -> Step:
    import numpy as np
    import onnxruntime

    import npgpt

    model = npgpt.from_pretrained(folder)
    config, path = model.config, Path(folder) / "model.onnx"
    if not path.is_file():
        write_graph(model, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    bound, B, H = session.io_binding(), work.B, config.n_head
    room = B, H, work.T + work.new, config.n_embd // H
    for name in [output.name for output in session.get_outputs()][1:]:
        kv = value(np.zeros(room, np.float32))
        bound.bind_ortvalue_input(f"past.{name}", kv)
        bound.bind_ortvalue_output(name, kv)  # the same: new ones are written behind the past
    bound.bind_output("logits")

    def logits_of(ids: Any, read: int) -> Any:
        T = read + ids.shape[1]
        inputs = {
            "ids": ids, "positions": np.arange(read, T),
            "last": np.full(B, T - 1, np.int32), "all": np.array(T, np.int32),
        }  # fmt: skip
        for name, array in inputs.items():
            bound.bind_ortvalue_input(name, value(array))
        session.run_with_iobinding(bound)
        return bound.get_outputs()[-1].numpy()

    ids = work.ids(config.vocab_size)
    return lambda new, _: greedy(ids, new, logits_of)


def write_graph(model: Any, path: Path) -> None:
    """[ids, positions, past keys and values] -> [logits of the last token, keys and values]."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    config = model.config
    H, d_h = config.n_head, config.n_embd // config.n_head
    kv = [f"{each}.{n}" for n in range(config.n_layer) for each in "kv"]
    inputs = {"ids": ("INT64", ["B", "T"]), "positions": ("INT64", ["T"])}
    inputs |= {"last": ("INT32", ["B"]), "all": ("INT32", [])}
    inputs |= {f"past.{name}": ("FLOAT", ["B", H, "S", d_h]) for name in kv}
    outputs = {"logits": ("FLOAT", ["B", config.vocab_size])}
    outputs |= {name: ("FLOAT", ["B", H, "S", d_h]) for name in kv}

    def described(arrays: dict[str, Any]) -> list[Any]:
        return [
            helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)
            for name, (kind, shape) in arrays.items()
        ]

    arrays = {**model.params, "-1": np.array(-1)}
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    ends = described(inputs), described(outputs)
    graph = helper.make_graph(nodes_of(config), "gpt2", *ends, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def nodes_of(config: Any) -> list[Any]:
    """The operations, in their order; weights are inputs of the names that they have in npgpt."""
    from onnx import helper

    nodes: list[Any] = []
    H, eps, last = config.n_head, config.layer_norm_epsilon, config.n_layer - 1

    def add(op: str, *inputs: str, more: tuple[str, ...] = (), **settings: Any) -> str:
        """Returns the name of the first output; `more` are those of the others."""
        name, domain = f"{op}.{len(nodes)}", "com.microsoft" if op in OURS else ""
        nodes.append(helper.make_node(op, inputs, [name, *more], domain=domain, **settings))
        return name

    def add_and_norm(x: str, correction: str, h: str, norm: str) -> tuple[str, str]:
        inputs = (correction, x, f"{norm}.weight", f"{norm}.bias", f"{h}.c_proj.bias")
        added = f"{h}.added"
        return added, add(OURS[0], *inputs, more=("", "", added), epsilon=eps)

    tokens, positions = add("Gather", "wte.weight", "ids"), add("Gather", "wpe.weight", "positions")
    x = add("Add", tokens, positions)
    normed = add("LayerNormalization", x, "h.0.ln_1.weight", "h.0.ln_1.bias", epsilon=eps)
    for n in range(last + 1):
        attn, mlp, kv = f"h.{n}.attn", f"h.{n}.mlp", (f"k.{n}", f"v.{n}")
        qkv = add("MatMul", normed, f"{attn}.c_attn.weight")
        qkv = add("Add", qkv, f"{attn}.c_attn.bias")
        inputs = (qkv, "", "", *(f"past.{name}" for name in kv), "last", "all")
        context = add("GroupQueryAttention", *inputs, more=kv, num_heads=H, kv_num_heads=H)
        correction = add("MatMul", context, f"{attn}.c_proj.weight")
        x, normed = add_and_norm(x, correction, attn, f"h.{n}.ln_2")
        hidden = add("MatMul", normed, f"{mlp}.c_fc.weight")
        hidden = add("FastGelu", hidden, f"{mlp}.c_fc.bias")
        correction = add("MatMul", hidden, f"{mlp}.c_proj.weight")
        if n == last:  # the head reads the last token only
            x, correction = (add("Gather", each, "-1", axis=1) for each in (x, correction))
        x, normed = add_and_norm(x, correction, mlp, "ln_f" if n == last else f"h.{n + 1}.ln_1")
    nodes.append(helper.make_node("Gemm", [normed, "wte.weight"], ["logits"], transB=1))
    return nodes
