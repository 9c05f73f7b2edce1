"""OpenVINO in `benchmark.py`: GPT-2 as a graph, with the attention that keeps keys and values."""

from __future__ import annotations

from typing import Any

from benchmark_works import Step, Work, greedy, threads


def in_openvino(work: Work, folder: str) -> Step:
    import numpy as np
    import openvino

    import npgpt

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
    import numpy as np
    from openvino import Model
    from openvino import opset15 as op

    config, params, state = model.config, model.params, list[Any]()
    H, d, across = config.n_head, config.n_embd, np.array([0, 2, 1, 3])
    ids = op.parameter([-1, -1], np.int32)
    positions, rows = op.parameter([-1], np.int32), op.parameter([-1], np.int32)

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
    import numpy as np
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
