// The formulas of the margin: forward, and on the way back the derivation of the same step.

/** "x_{i} = e^{s}" with lowered and raised parts. */
function math(text) {
  const found = [];
  let end = 0;
  for (const match of text.matchAll(/_\{([^}]*)\}|\^\{([^}]*)\}/g)) {
    found.push(text.slice(end, match.index));
    found.push(match[1] !== undefined ? h("sub", {}, match[1]) : h("sup", {}, match[2]));
    end = match.index + match[0].length;
  }
  return h(
    "i",
    {},
    [...found, text.slice(end)].filter((part) => part !== ""),
  );
}

const TABLE = DATA.table.replace(".weight", "");
const HEAD_TABLE = DATA.lm_head.replace(".weight", "");
const FORMULAS = {
  tokens: LLAMA
    ? { forward: [`x_{i} = ${TABLE}[id_{i}]`], back: [`d${TABLE}[id_{i}] += dx_{i}`] }
    : {
        forward: ["x_{i} = wte[id_{i}] + wpe[i]"],
        back: ["dwte[id_{i}] += dx_{i}", "dwpe[i] = dx_{i}"],
      },
  stream: LLAMA
    ? {
        forward: ["x ← x + attn(norm(x))", "x ← x + mlp(norm(x))"],
        back: ["dx ← dx + norm′(mlp′(dx))", "dx ← dx + norm′(attn′(dx))"],
      }
    : {
        forward: ["x ← x + attn(ln_{1}(x))", "x ← x + mlp(ln_{2}(x))"],
        back: ["dx ← dx + ln_{2}′(mlp′(dx))", "dx ← dx + ln_{1}′(attn′(dx))"],
      },
  attention: {
    forward: [
      `P = softmax(${LLAMA ? "Rq (Rk)^{⊤}" : "q k^{⊤}"}${DIVIDED} + M)`,
      "z = P v",
    ],
    back: [
      "dP = dz v^{⊤}",
      "dS = P ⊙ (dP − Σ_{k} P_{k} dP_{k})",
      `dq = dS k${DIVIDED}`,
      "dv = P^{⊤} dz",
    ],
  },
  neurons: LLAMA
    ? {
        forward: [`a = ${DATA.activation}(x W_{gate}) ⊙ x W_{up}`, "mlp = a W_{down}"],
        back: ["da = dx W_{down}^{⊤}", "dW_{down} = a^{⊤} dx"],
      }
    : {
        forward: [
          `a = ${DATA.activation.replace("_new", "")}(x W_{1} + b_{1})`,
          "mlp = a W_{2} + b_{2}",
        ],
        back: ["da = dx W_{2}^{⊤}", "dW_{2} = a^{⊤} dx"],
      },
  answers: {
    forward: [`p = softmax(${LLAMA ? "norm" : "ln_{f}"}(x) ${HEAD_TABLE}^{⊤})`],
    back: ["dlogits = (p − onehot(y)) / N"],
  },
  silent: { forward: ["ΔL ≈ −Σ dout · out"], back: ["ΔL ≈ −Σ dout · out"] },
};

/** What computes it (forward, back) and the article's section. */
const SOURCES = {
  tokens: ["npgpt.ops.lookup", LLAMA ? "5" : "5, 6"],
  stream: [`npgpt.models.${DATA.kind}.model.block_`, "9"],
  attention: ["npgpt.ops.softmax.softmax_", "7.3"],
  neurons: [LLAMA ? "npgpt.layers.swiglu.swiglu_" : "npgpt.layers.feed_forward.feed_forward_", "8"],
  answers: ["npgpt.ops.lm_head.lm_head_", "10"],
  silent: ["npgpt.ablate", "7.6"],
};
const STEP_SOURCES = {
  1: LLAMA ? "npgpt.ops.project.project_" : "npgpt.ops.linear.linear_",
  2: "npgpt.ops.scores.scores_",
  3: "npgpt.ops.scores.scale_",
  4: "npgpt.ops.mask.mask_",
  5: "npgpt.ops.softmax.softmax_",
  6: "npgpt.ops.weighted_sum.weighted_sum_",
};
