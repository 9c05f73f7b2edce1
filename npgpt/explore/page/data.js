// The data of the page: arrays decoded, and short ways to the numbers in them.

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return exponent === 31 ? NaN : sign * (1024 + fraction) * 2 ** (exponent - 25);
}

function decoded(_, value) {
  if (value && value.array && value.scale) {
    return { shape: value.array.shape, values: value.array.values.map((x) => x * value.scale) };
  }
  if (!value || value.base64 === undefined) return value;
  const text = atob(value.base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const read = {
    f2: () => Float32Array.from(new Uint16Array(bytes.buffer), half),
    f4: () => new Float32Array(bytes.buffer), // of the lowest byte first, as all browsers are
    i4: () => new Int32Array(bytes.buffer),
  };
  return { shape: value.shape, values: read[value.kind]() };
}

const DATA = JSON.parse(document.getElementById("data").textContent, decoded);
const { L, H, G, T, d_h, F, V } = DATA.sizes;
const SCORED = T - 1; // positions with a next token
const LLAMA = DATA.kind === "llama";
const BLOCK = LLAMA ? "layers" : "h";
const ATTN = LLAMA ? "self_attn" : "attn";
const ACT = LLAMA ? "gated" : "act";
const LN_1 = LLAMA ? "input_layernorm" : "ln_1";
const LN_2 = LLAMA ? "post_attention_layernorm" : "ln_2";
const DIVIDED = DATA.divisors[0] === 1 ? "" : " / √d_{h}"; // step 3, which GPT-Neo leaves out
const LN_F = LLAMA ? "norm" : "ln_f";

/** One number of an array, or the last axis where one index is missing. */
function at(array, ...index) {
  const { shape, values } = array;
  let offset = 0;
  for (let i = 0; i < index.length; i++) offset = offset * shape[i] + index[i];
  if (index.length === shape.length) return values[offset];
  const size = shape[shape.length - 1];
  return values.subarray(offset * size, (offset + 1) * size);
}

const upTo = (n) => Array.from({ length: n }, (_, i) => i);
const layerOf = (head) => Math.floor(head / H);
const address = (head) => `${layerOf(head)}·H${head % H}`;

/** A head's table of weights, scores or their gradients as (i, j) -> number; null if left out. */
function table(name, head) {
  const place = DATA.tables.kept.indexOf(head);
  if (place < 0) return null;
  const values = at(DATA.tables[name], place);
  return (i, j) => values[(i * (i + 1)) / 2 + j];
}

/** A head's query, key or value, or a gradient of it; null if left out. */
function vector(name, head, position) {
  const place = DATA.vectors.kept.indexOf(head);
  return place < 0 ? null : at(DATA.vectors[name], place, position);
}

const label = (id) => DATA.labels[id];
/** What follows position t; at the end, what the model itself says. */
const targetAt = (t) => (t < SCORED ? DATA.tokens[t + 1].id : at(DATA.answers.ids, t, 0));

/** The key that a head looks at most from a position. */
function mostLooked(head, position) {
  const P = table("probs", head);
  if (!P) return 0;
  return upTo(position + 1).reduce((best, j) => (P(position, j) > P(position, best) ? j : best), 0);
}

/** Rows of the stream: embed, then attention and network of each block. */
const ROWS = ["embed", ...upTo(2 * L).map((r) => `${r >> 1}·${r % 2 ? "MLP" : "attn"}`)];
const stationOf = (row) =>
  row === 0 ? "embed" : `${BLOCK}.${(row - 1) >> 1}.${(row - 1) % 2 ? "mlp" : ATTN}`;
