"""GPT-2 as a graph that an engine compiles: ONNX Runtime and OpenVINO."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import npgpt
from benchmarking import Step, Work, threads

# Operations of ONNX Runtime's own, as its optimizer has them: they add the biases and the residual.
OURS = ("SkipLayerNormalization", "FastGelu", "GroupQueryAttention")


def greedy(ids: Any, new: int, logits_of: Callable[[Any, int], Any]) -> Any:
    """Decode with a function of the ids to read and how many were read; the last logits [B, V]."""
    read = 0
    for _ in range(new):
        logits = logits_of(ids, read)
        read, ids = read + ids.shape[1], logits.argmax(-1)[:, None]
    return logits.copy()  # the engine may write the next ones there


def in_onnx(work: Work, folder: str) -> Step:
    import onnxruntime

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
        return f"{h}.added", add(OURS[0], *inputs, more=("", "", f"{h}.added"), epsilon=eps)

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


def in_openvino(work: Work, folder: str) -> Step:
    import openvino

    model = npgpt.from_pretrained(folder)
    settings = {
        "INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32",
        "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads(),
        "ENABLE_HYPER_THREADING": True,  # or it would take one thread of each core
    }  # fmt: skip
    request = openvino.compile_model(graph_of(model), "CPU", settings).create_infer_request()
    rows = np.arange(work.B, dtype=np.int32)

    def logits_of(ids: Any, read: int) -> Any:
        if not read:
            request.reset_state()
        positions = np.arange(read, read + ids.shape[1], dtype=np.int32)
        inputs = [ids.astype(np.int32), positions, rows]
        return request.infer(inputs, share_inputs=True, share_outputs=True)[0]

    ids = work.ids(model.config.vocab_size)
    return lambda new, _: greedy(ids, new, logits_of)


def graph_of(model: Any) -> Any:
    """[ids, positions, rows of the cache] -> logits of the last token, with the cache as state."""
    from openvino import Model
    from openvino import opset15 as op

    config, params, state = model.config, model.params, list[Any]()
    H, d, across = config.n_head, config.n_embd, np.array([0, 2, 1, 3])
    ids, positions, rows = (op.parameter([-1] * axes, np.int32) for axes in (2, 1, 1))

    def norm(x: Any, name: str) -> Any:
        x = op.mvn(x, np.array([-1]), True, config.layer_norm_epsilon, "INSIDE_SQRT")
        return op.add(op.multiply(x, params[f"{name}.weight"]), params[f"{name}.bias"])

    def linear(x: Any, name: str) -> Any:
        return op.add(op.matmul(x, params[f"{name}.weight"], False, False), params[f"{name}.bias"])

    def heads(x: Any) -> Any:  # [B, T, d] -> [B, H, T, d_h]
        return op.transpose(op.reshape(x, np.array([0, 0, H, -1]), True), across)

    tables = (params["wte.weight"], ids), (params["wpe.weight"], positions)
    x = op.add(*(op.gather(table, places, np.array(0)) for table, places in tables))
    for n in range(config.n_layer):
        h = f"h.{n}"
        qkv = op.split(linear(norm(x, f"{h}.ln_1"), f"{h}.attn.c_attn"), np.array(2), 3)
        q, k, v = map(heads, qkv.outputs())
        kv = [with_past(new, rows, state, H, d // H) for new in (k, v)]
        context = op.scaled_dot_product_attention(q, *kv, causal=True)
        context = op.reshape(op.transpose(context, across), np.array([0, 0, d]), True)
        x = op.add(x, linear(context, f"{h}.attn.c_proj"))
        hidden = op.gelu(linear(norm(x, f"{h}.ln_2"), f"{h}.mlp.c_fc"), "tanh")
        x = op.add(x, linear(hidden, f"{h}.mlp.c_proj"))
    x = norm(op.gather(x, np.array(-1), np.array(1)), "ln_f")  # the head reads the last token only
    logits = op.matmul(x, params["wte.weight"], False, True)
    return Model([op.result(logits)], state, [ids, positions, rows], "gpt2")


def with_past(new: Any, rows: Any, state: list[Any], H: int, d_h: int) -> Any:
    """Keys or values behind those of earlier tokens, which are a variable; its update is noted."""
    from openvino import PartialShape, Type
    from openvino import opset15 as op
    from openvino.op.util import Variable, VariableInfo

    info = VariableInfo()
    info.variable_id, info.data_type = f"kv.{len(state)}", Type.f32
    info.data_shape = PartialShape([-1, H, -1, d_h])
    variable = Variable(info)
    shape = op.concat([op.shape_of(rows), np.array([H, 0, d_h])], 0)
    past = op.read_value(op.broadcast(np.float32(0), shape), variable)
    both = op.concat([op.gather(past, rows, np.array(0)), new], 2)
    state.append(op.assign(both, variable))
    return both
